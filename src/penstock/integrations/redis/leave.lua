-- Return permits and record how the calls ended, by the same rules as limits/breaker.py.
-- KEYS: breaker, cooldown and sem of each call.

local function open(key, open_for)
    redis.call('DEL', key)
    local open_until = now + open_for
    local forget_at = open_until + constant.breaker_kept
    redis.call('HSET', key, 'open_until', open_until, 'forget_at', forget_at)
    expire(key, forget_at)
end

local function record(key, verdict, entered_at, failures_max, open_for)
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
        local forget_at = now + constant.breaker_kept
        redis.call('HSET', key, 'failures', breaker.failures + 1, 'forget_at', forget_at)
        expire(key, forget_at)
    end
end

local function record_probe(key, permit_id, verdict, open_for)
    local held_until = read_breaker(key).probes[permit_id] or 0
    redis.call('HDEL', key, 'probe:' .. permit_id)
    if held_until <= now then
        return
    end
    if verdict == 'alive' then
        redis.call('DEL', key)
        local forget_at = now + constant.breaker_kept
        redis.call('HSET', key, 'closed_at', now, 'forget_at', forget_at)
        expire(key, forget_at)
    elseif verdict == 'failing' then
        open(key, open_for)
    end
end

local function leave(call, breaker_key, cooldown_key, sem_key)
    local permit_id, verdict, is_probe, entered_at, failures_max, open_for, cooldown = unpack(call)
    redis.call('ZREM', sem_key, permit_id)
    if is_probe then
        record_probe(breaker_key, permit_id, verdict, open_for)
    elseif verdict ~= 'unknown' then
        record(breaker_key, verdict, entered_at, failures_max, open_for)
    end
    if cooldown > 0 then
        local cooldown_until = now + math.min(cooldown, constant.cooldown_max)
        if cooldown_until > tonumber(redis.call('GET', cooldown_key) or 0) then
            redis.call('SET', cooldown_key, cooldown_until)
            expire(cooldown_key, cooldown_until)
        end
    end
end

for i, call in ipairs(calls) do
    leave(call, KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i])
end
return #calls
