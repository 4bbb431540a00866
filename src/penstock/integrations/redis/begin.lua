-- The common first part of the scripts; sent as one text with each of them.
-- ARGV: now in microseconds since 1970 (0 means the server's own clock), the constants of
-- limits/policy.py, and the calls, each an array of values. Every number that is stored is whole
-- and below 2^53, so that Lua's floats hold it exactly.

local now = tonumber(ARGV[1])
if now == 0 then
    local time = redis.call('TIME')
    now = time[1] * 1000000 + time[2]
end
local constant = cmsgpack.unpack(ARGV[2])
local calls = cmsgpack.unpack(ARGV[3])

-- A breaker as a table; a missing field is 0. A forgotten breaker is empty.
local function read_breaker(key)
    local stored = redis.call('HGETALL', key)
    local breaker = {failures = 0, open_until = 0, closed_at = 0, forget_at = 0, probes = {}}
    for i = 1, #stored, 2 do
        local probe = string.match(stored[i], '^probe:(.+)$')
        if probe then
            breaker.probes[probe] = tonumber(stored[i + 1])
        else
            breaker[stored[i]] = tonumber(stored[i + 1])
        end
    end
    if #stored > 0 and breaker.forget_at <= now then
        redis.call('DEL', key)
        return {failures = 0, open_until = 0, closed_at = 0, forget_at = 0, probes = {}}
    end
    return breaker
end

-- The instants stored in a key decide; its time to live only frees memory, a minute later. A longer
-- time to live, set under earlier rules, is kept.
local function expire(key, last)
    local ttl_ms = math.ceil((last - now) / 1000) + 60000
    if redis.call('PTTL', key) < ttl_ms then
        redis.call('PEXPIRE', key, ttl_ms)
    end
end

-- The instant of the next place in a queue of refused calls, and the queue's new end.
local function place_in_queue(queue_until, first_at, step, longest, chance)
    local at = math.max(queue_until + step, first_at)
    if at <= now + longest then
        return at, at
    end
    local half = math.floor(longest / 2)
    return now + half + math.floor(half * chance / 1000000), now + longest
end
