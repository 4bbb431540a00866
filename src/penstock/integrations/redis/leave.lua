-- Give slots back and judge how the calls went, by the same rules as limits/breaker.py.
-- KEYS: breaker, rest and sem of each call.

local function open(key, open_for)
    redis.call('DEL', key)
    local open_until = now + open_for
    local forget_at = open_until + constant.kept
    redis.call('HSET', key, 'open_until', open_until, 'forget_at', forget_at)
    expire(key, forget_at)
end

local function judge(key, verdict, entered_at, failures_max, open_for)
    local breaker = read_breaker(key)
    local is_late = entered_at < breaker.closed_at and breaker.closed_at <= now
    if breaker.open_until > 0 or is_late then
        return
    end
    if verdict == 'alive' and breaker.failures > 0 then
        redis.call('HSET', key, 'failures', 0)
    elseif verdict == 'failing' and breaker.failures + 1 >= failures_max then
        open(key, open_for)
    elseif verdict == 'failing' then
        local forget_at = now + constant.kept
        redis.call('HSET', key, 'failures', breaker.failures + 1, 'forget_at', forget_at)
        expire(key, forget_at)
    end
end

local function judge_probe(key, slot, verdict, open_for)
    local held_until = read_breaker(key).probes[slot] or 0
    redis.call('HDEL', key, 'probe:' .. slot)
    if held_until <= now then
        return
    end
    if verdict == 'alive' then
        redis.call('DEL', key)
        local forget_at = now + constant.kept
        redis.call('HSET', key, 'closed_at', now, 'forget_at', forget_at)
        expire(key, forget_at)
    elseif verdict == 'failing' then
        open(key, open_for)
    end
end

local function leave(call, breaker_key, rest_key, sem_key)
    local slot, verdict, is_probe, entered_at, failures_max, open_for, rest = unpack(call)
    redis.call('ZREM', sem_key, slot)
    if is_probe then
        judge_probe(breaker_key, slot, verdict, open_for)
    elseif verdict ~= 'unknown' then
        judge(breaker_key, verdict, entered_at, failures_max, open_for)
    end
    if rest > 0 then
        local rest_until = now + math.min(rest, constant.rest_max)
        if rest_until > tonumber(redis.call('GET', rest_key) or 0) then
            redis.call('SET', rest_key, rest_until)
            expire(rest_key, rest_until)
        end
    end
end

for i, call in ipairs(calls) do
    leave(call, KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i])
end
return #calls
