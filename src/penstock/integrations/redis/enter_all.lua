-- Admit or refuse calls that several keys limit, by the same rules as limits/local.py.
-- Each call: a random number, and one limit per key. KEYS: rate and sem of each limit.
-- Returns for each: the reason of a refusal or '', microseconds to wait or to come back after,
-- which of its keys refuses it, from 0 on, and now.

local function read_limit(values, rate_key, sem_key)
    local permit_id, interval, concurrency, permit_ttl = unpack(values)
    local rate = redis.call(
        'HMGET', rate_key, 'last_at', 'rate_queue_until', 'semaphore_queue_until', 'gaps')
    local last_at = tonumber(rate[1] or 0)
    return {
        permit_id = permit_id, interval = interval, concurrency = concurrency,
        permit_ttl = permit_ttl, rate_key = rate_key, sem_key = sem_key, last_at = last_at,
        -- Further ahead than any permit means that the clock was set back: start again.
        free_at = last_at <= now + constant.wait_max and last_at + interval or 0,
        rate_queue_until = tonumber(rate[2] or 0),
        semaphore_queue_until = tonumber(rate[3] or 0),
        gaps = rate[4] and cmsgpack.unpack(rate[4]) or {},
    }
end

local function first_free(limit, at)
    if limit.interval == 0 then
        return at
    end
    for _, gap in ipairs(limit.gaps) do
        if at <= gap[2] then
            return math.max(gap[1], at)
        end
    end
    return math.max(limit.free_at, at)
end

local function common_instant(limits)
    local at, last, is_common = now, 1, false
    while not is_common and at - now <= constant.wait_max do
        is_common = true
        for i, limit in ipairs(limits) do
            local free_at = first_free(limit, at)
            if free_at > at then
                at, last, is_common = free_at, i, false
            end
        end
    end
    return at, last
end

local function gaps_after(limit, at)
    local stretches = limit.gaps
    if at >= limit.free_at then
        table.insert(stretches, {limit.free_at, at})
    end
    local left = {}
    local function keep(first, last)
        first = math.max(first, now)
        if first <= last then
            table.insert(left, {first, last})
        end
    end
    for _, gap in ipairs(stretches) do
        if gap[1] <= at and at <= gap[2] then
            keep(gap[1], at - limit.interval)
            keep(at + limit.interval, gap[2])
        else
            keep(gap[1], gap[2])
        end
    end
    while #left > constant.gaps_max do
        table.remove(left, 1)
    end
    return left
end

local function expire_rate(limit)
    expire(limit.rate_key, math.max(
        limit.last_at + limit.interval, limit.rate_queue_until, limit.semaphore_queue_until))
end

local function queue_for_rate(limit, at, chance)
    local place
    place, limit.rate_queue_until = place_in_queue(
        limit.rate_queue_until, at, limit.interval, constant.rate_queue_max, chance)
    redis.call('HSET', limit.rate_key, 'rate_queue_until', limit.rate_queue_until)
    expire_rate(limit)
    return place - math.floor(constant.wait_max / 2) - now
end

local function is_full(limit)
    if limit.concurrency == 0 then
        return false
    end
    redis.call('ZREMRANGEBYSCORE', limit.sem_key, '-inf', now)
    limit.held = redis.call('ZCARD', limit.sem_key)
    return limit.held >= limit.concurrency
end

local function queue_for_semaphore(limit, chance)
    local half = math.floor(limit.held / 2)
    local median = redis.call('ZRANGE', limit.sem_key, half, half, 'WITHSCORES')
    local age = now - (tonumber(median[2]) - limit.permit_ttl)
    local step = math.floor(math.max(2 * age, constant.call_min) / limit.concurrency)
    local place
    place, limit.semaphore_queue_until = place_in_queue(
        limit.semaphore_queue_until, now + math.max(step, constant.call_min), step,
        constant.semaphore_queue_max, chance)
    redis.call('HSET', limit.rate_key, 'semaphore_queue_until', limit.semaphore_queue_until)
    expire_rate(limit)
    return place - now
end

local function take(limit, at)
    if limit.interval > 0 then
        if now - limit.free_at > constant.queue_abandoned_after + limit.interval then
            limit.rate_queue_until = 0
        end
        local had_gaps = #limit.gaps > 0
        local gaps = gaps_after(limit, at)
        if at >= limit.free_at then
            limit.last_at = at
        end
        redis.call('HSET', limit.rate_key,
            'last_at', limit.last_at, 'rate_queue_until', limit.rate_queue_until)
        if #gaps > 0 then
            redis.call('HSET', limit.rate_key, 'gaps', cmsgpack.pack(gaps))
        elseif had_gaps then
            redis.call('HDEL', limit.rate_key, 'gaps')
        end
        expire_rate(limit)
    end
    if limit.concurrency > 0 then
        local held_until = at + limit.permit_ttl
        redis.call('ZADD', limit.sem_key, held_until, limit.permit_id)
        expire(limit.sem_key, held_until)
    end
end

local function enter_all(limits, chance)
    -- All checks come before all changes: a refused call must not have used anything up.
    local at, last = common_instant(limits)
    if at - now > constant.wait_max then
        return {'rate_limited', queue_for_rate(limits[last], at, chance), last - 1, now}
    end
    for i, limit in ipairs(limits) do
        if is_full(limit) then
            return {'concurrency_limited', queue_for_semaphore(limit, chance), i - 1, now}
        end
    end
    for _, limit in ipairs(limits) do
        take(limit, at)
    end
    return {'', at - now, 0, now}
end

local answers = {}
local key = 0
for i, call in ipairs(calls) do
    local limits = {}
    for j = 2, #call do
        limits[j - 1] = read_limit(call[j], KEYS[key + 1], KEYS[key + 2])
        key = key + 2
    end
    answers[i] = enter_all(limits, call[1])
end
return cmsgpack.pack(answers)
