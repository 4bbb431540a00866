-- Admit or refuse calls, by the same rules as limits/local.py.
-- KEYS: breaker, cooldown, rate and sem of each call.
-- Returns for each: the reason of a refusal or '', microseconds to wait or to come back after,
-- whether it is a probe, and now.

local function spread(until_, chance)
    local left = until_ - now
    local more = (constant.spread + math.floor(left / 10)) * chance
    return left + math.floor(more / 1000000)
end

-- Until when a tripped breaker admits no call; 0 if a probe may enter.
local function blocked_until(key, breaker, open_for, probes_max)
    if now < breaker.open_until and breaker.open_until <= now + open_for then
        return breaker.open_until
    end
    local probes = 0
    for permit_id, held_until in pairs(breaker.probes) do
        if held_until > now then
            probes = probes + 1
        else
            redis.call('HDEL', key, 'probe:' .. permit_id)
        end
    end
    return probes >= probes_max and now + constant.probe_wait or 0
end

local function enter(call, breaker_key, cooldown_key, rate_key, sem_key)
    local permit_id, interval, concurrency, permit_ttl, open_for, probes_max, chance = unpack(call)

    -- All checks come before all changes: a refused call must not have used anything up.
    local cooldown_until = tonumber(redis.call('GET', cooldown_key) or 0)
    local breaker = read_breaker(breaker_key)
    local is_probe = breaker.open_until > 0
    if is_probe then
        local blocked = blocked_until(breaker_key, breaker, open_for, probes_max)
        if blocked > 0 then
            return {'circuit_open', spread(math.max(blocked, cooldown_until), chance), false, now}
        end
    end
    if now < cooldown_until then
        return {'cooldown', spread(cooldown_until, chance), false, now}
    end
    local rate = redis.call('HMGET', rate_key, 'last_at', 'rate_queue_until', 'semaphore_queue_until')
    local last_at = tonumber(rate[1] or 0)
    local rate_queue_until = tonumber(rate[2] or 0)
    local semaphore_queue_until = tonumber(rate[3] or 0)
    -- Further ahead than any permit means that the clock was set back: start again.
    local free_at = last_at <= now + constant.wait_max and last_at + interval or 0
    local at = now
    if interval > 0 then
        at = math.max(free_at, now)
        if at - now > constant.wait_max then
            local place
            place, rate_queue_until = place_in_queue(
                rate_queue_until, at, interval, constant.rate_queue_max, chance
            )
            redis.call('HSET', rate_key, 'rate_queue_until', rate_queue_until)
            expire(rate_key, math.max(free_at, rate_queue_until, semaphore_queue_until))
            return {'rate_limited', place - math.floor(constant.wait_max / 2) - now, false, now}
        end
    end
    redis.call('ZREMRANGEBYSCORE', sem_key, '-inf', now)
    local held = redis.call('ZCARD', sem_key)
    if held >= concurrency then
        local half = math.floor(held / 2)
        local median = redis.call('ZRANGE', sem_key, half, half, 'WITHSCORES')
        local age = now - (tonumber(median[2]) - permit_ttl)
        local step = math.floor(math.max(2 * age, constant.call_min) / concurrency)
        local first_at = now + math.max(step, constant.call_min)
        local place
        place, semaphore_queue_until = place_in_queue(
            semaphore_queue_until, first_at, step, constant.semaphore_queue_max, chance
        )
        redis.call('HSET', rate_key, 'semaphore_queue_until', semaphore_queue_until)
        expire(rate_key, math.max(free_at, rate_queue_until, semaphore_queue_until))
        return {'concurrency_limited', place - now, false, now}
    end

    local held_until = at + permit_ttl
    redis.call('ZADD', sem_key, held_until, permit_id)
    expire(sem_key, held_until)
    if interval > 0 then
        if now - free_at > constant.queue_abandoned_after + interval then
            rate_queue_until = 0
        end
        redis.call('HSET', rate_key, 'last_at', at, 'rate_queue_until', rate_queue_until)
        expire(rate_key, math.max(at + interval, rate_queue_until, semaphore_queue_until))
    end
    if is_probe then
        redis.call('HSET', breaker_key, 'probe:' .. permit_id, held_until)
    end
    return {'', at - now, is_probe, now}
end

local answers = {}
for i, call in ipairs(calls) do
    answers[i] = enter(call, KEYS[4 * i - 3], KEYS[4 * i - 2], KEYS[4 * i - 1], KEYS[4 * i])
end
return cmsgpack.pack(answers)
