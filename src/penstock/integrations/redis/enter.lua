-- Let calls in or turn them away, by the same rules as limits/local.py.
-- KEYS: breaker, rest, rate and sem of each call.
-- Returns for each: why it is refused or '', microseconds to wait or to stay away, whether it is a
-- probe, and now.

local function spread(until_, chance)
    local left = until_ - now
    local more = (constant.spread + math.floor(left / 10)) * chance
    return left + math.floor(more / 1000000)
end

-- The next place in a line of refused callers, and where the line ends then.
local function line_up(line, first_at, step, longest, chance)
    local at = math.max(line + step, first_at)
    if at <= now + longest then
        return at, at
    end
    local half = math.floor(longest / 2)
    return now + half + math.floor(half * chance / 1000000), now + longest
end

-- Until when a tripped breaker lets nobody in; 0 if a probe may pass.
local function shut_until(key, breaker, open_for, probes_max)
    if now < breaker.open_until and breaker.open_until <= now + open_for then
        return breaker.open_until
    end
    local probes = 0
    for slot, held_until in pairs(breaker.probes) do
        if held_until > now then
            probes = probes + 1
        else
            redis.call('HDEL', key, 'probe:' .. slot)
        end
    end
    return probes >= probes_max and now + constant.probing or 0
end

local function enter(call, breaker_key, rest_key, rate_key, sem_key)
    local slot, interval, concurrency, slot_ttl, open_for, probes_max, chance = unpack(call)

    -- First all questions, then all changes: who is refused must not have used anything up.
    local rest_until = tonumber(redis.call('GET', rest_key) or 0)
    local breaker = read_breaker(breaker_key)
    local is_probe = breaker.open_until > 0
    if is_probe then
        local shut = shut_until(breaker_key, breaker, open_for, probes_max)
        if shut > 0 then
            return {'circuit_open', spread(math.max(shut, rest_until), chance), false, now}
        end
    end
    if now < rest_until then
        return {'resting', spread(rest_until, chance), false, now}
    end
    local rate = redis.call('HMGET', rate_key, 'last_at', 'line', 'crowd')
    local last_at = tonumber(rate[1] or 0)
    local line = tonumber(rate[2] or 0)
    local crowd = tonumber(rate[3] or 0)
    -- An instant further ahead than any is given: the clock was set back. Begin anew.
    local free_at = last_at <= now + constant.ahead and last_at + interval or 0
    local at = now
    if interval > 0 then
        at = math.max(free_at, now)
        if at - now > constant.ahead then
            local place
            place, line = line_up(line, at, interval, constant.line_max, chance)
            redis.call('HSET', rate_key, 'line', line)
            expire(rate_key, math.max(free_at, line, crowd))
            return {'rate_limited', place - math.floor(constant.ahead / 2) - now, false, now}
        end
    end
    redis.call('ZREMRANGEBYSCORE', sem_key, '-inf', now)
    local held = redis.call('ZCARD', sem_key)
    if held >= concurrency then
        local half = math.floor(held / 2)
        local middle = redis.call('ZRANGE', sem_key, half, half, 'WITHSCORES')
        local age = now - (tonumber(middle[2]) - slot_ttl)
        local step = math.floor(math.max(2 * age, constant.hold_min) / concurrency)
        local first_at = now + math.max(step, constant.hold_min)
        local place
        place, crowd = line_up(crowd, first_at, step, constant.crowd_max, chance)
        redis.call('HSET', rate_key, 'crowd', crowd)
        expire(rate_key, math.max(free_at, line, crowd))
        return {'crowded', place - now, false, now}
    end

    local held_until = at + slot_ttl
    redis.call('ZADD', sem_key, held_until, slot)
    expire(sem_key, held_until)
    if interval > 0 then
        if now - free_at > constant.line_forgotten + interval then
            line = 0
        end
        redis.call('HSET', rate_key, 'last_at', at, 'line', line)
        expire(rate_key, math.max(at + interval, line, crowd))
    end
    if is_probe then
        redis.call('HSET', breaker_key, 'probe:' .. slot, held_until)
    end
    return {'', at - now, is_probe, now}
end

local answers = {}
for i, call in ipairs(calls) do
    answers[i] = enter(call, KEYS[4 * i - 3], KEYS[4 * i - 2], KEYS[4 * i - 1], KEYS[4 * i])
end
return cmsgpack.pack(answers)
