-- Sliding window of more than 64 buckets: the log's ring, with times rounded down to the start of their bucket. Twin of
-- core's bucket_ring.rs; prelude.lua has the contract, but `state` and `change` are tables here, as in sliding_log.lua.
--
-- State
--   BBI6  version 1, kind 12, number of entries
--   I8    running total before the oldest entry
--   I8    slot of the oldest entry + 2^24 * number of slots
--   I8    bucket width
--   I7I7  start of the bucket and running total of an entry, for each slot of the ring
--
-- Numbers, doubles: limit, bucket width, buckets, strict (0 or 1), tick
--
-- Example: charges of 1 at 2500000 and of 2 at 2650000 under buckets of 100000 leave the entries (2500000, 1) and
-- (2600000, 3).
--
-- A check reads the head and, by binary search, the few entries that it needs, whatever the number of buckets.

-- Returns counts of a sliding window, as bytes, as a ring. The newest bucket is kept even if it is empty, for its time.
local function counts_to_ring(key, state)
  check_head(state, 24)
  local count, width, newest = unpack_from('<I6I8I8', state, 3)
  check_range(0, count, 0, 1441)
  check_length(state, 24 + 8 * count)
  check_range(1, width, 1, MAX)
  check_range(2, newest, 0, MAX)
  local log = new_log(key, width, 0, {}, {}, 0)
  for age = count - 1, 0, -1 do
    local units = unpack_from('<I8', state, 25 + 8 * age)
    check_range(3 + age, units, 0, MAX)
    local start = newest - age * width
    if (units > 0 or age == 0) and start >= 0 then
      log = edit_log(log, key, { expired = 0, time = start, cost = units })
    end
  end
  return log
end

-- Returns a ring, as a log or as bytes, as bytes of counts, for a window of few buckets. Returns nil if it is empty.
local function ring_to_counts(key, state)
  local log = type(state) == 'table' and state or open_log(key, state)
  if log.high == log.low then
    return nil
  end
  local newest, width = entry(log, log.high - 1), log.width
  local ages = min(floor((newest - entry(log, log.low)) / width), 1440)
  local counts, before = {}, log.base
  for age = 0, ages do
    counts[age] = 0
  end
  for index = log.low, log.high - 1 do
    local time, total = entry(log, index)
    local age = floor((newest - time) / width)
    if age <= ages then
      counts[age] = (total - before) % WRAP
    end
    before = total
  end
  local parts = { pack('<BBI6I8I8', 1, 2, ages + 1, width, newest) }
  for age = 0, ages do
    parts[age + 2] = pack('<I8', counts[age])
  end
  return table.concat(parts)
end

-- Lets the newest entry stay, so that time does not run backwards.
local function keep_newest(change, high)
  change.dropped = min(change.dropped, high - 1)
  return change
end

local function bucket_ring(log, now, op, cost, _, extra, mark, numbers_at)
  local limit, width, buckets, strict, tick = unpack_from('<ddddd', batch, numbers_at)
  local ticks, window = width / tick, width * buckets
  local low, high, expired, base, total, live, used = 0, 0, 0, 0, 0, 0, 0
  local same_width, newest_time, newer = true, nil, 0
  local oldest_sum, newer_sum = 0, 0

  -- The start of the bucket in which an entry counts. A bucket of another width counts where its last microsecond is.
  local function counted_start(time)
    if same_width then
      return time
    end
    time = min(time + log.width - 1, MAX)
    return time - time % width
  end

  local function leaves_at(start)
    return min(min(start + window, MAX) + width, MAX)
  end

  local function has_expired(time)
    return leaves_at(counted_start(time)) <= now
  end

  local function clamped(oldest)
    return min(oldest, floor(MAX / ticks))
  end

  local function total_before(index)
    if index == low then
      return high > low and log.base or 0
    end
    local _, sum = entry(log, index - 1)
    return sum
  end

  local start = now - now % width

  local function counted(oldest, rest)
    if strict == 0 then
      oldest = ceil_div(clamped(oldest) * (ticks - floor((now - start) / tick)), ticks)
    end
    return min(rest + oldest, MAX)
  end

  if log and log.high > log.low then
    low, high, same_width = log.low, log.high, log.width == width
    newest_time, total = entry(log, high - 1)
    now = max(now, newest_time)
    start = now - now % width
    expired = search_from_oldest(log, low, high, has_expired)
    newer = search_from_oldest(log, expired, high, function(time)
      return min(counted_start(time) + window, MAX) <= start
    end)
    base = total_before(expired)
    local middle = total_before(newer)
    oldest_sum, newer_sum = (middle - base) % WRAP, (total - middle) % WRAP
    used = counted(oldest_sum, newer_sum)
    live = (total - base) % WRAP
  end

  -- Returns when all units are back: when the newest bucket with units leaves.
  local function reset()
    if live == 0 then
      return now
    end
    return leaves_at(counted_start((entry(log, newest_with_units(log, expired, high, total)))))
  end

  -- Returns when at most `room` units count, after `added` units in the current bucket.
  local function has_room_at(room, added)
    local index = search_from_oldest(log, expired, high, function(_, sum)
      return (total - sum) % WRAP + added > room
    end)
    local leaving = index < high and counted_start((entry(log, index))) or start
    -- Added units convert buckets of another width, which then end with the current one at the latest.
    local is_current = added > 0 and leaving >= start
    if is_current then
      leaving = start
    end
    if strict == 1 then
      return leaves_at(leaving)
    end
    -- The bucket that must leave in part, or as a whole. Buckets of another width may share it.
    local first = partition_point(log, low, index, function(time)
      return counted_start(time) < leaving
    end)
    local last = is_current and high or partition_point(log, index, high, function(time)
      return counted_start(time) <= leaving
    end)
    local after = total_before(last)
    local oldest, left = (after - total_before(first)) % WRAP, room - (total - after) % WRAP
    if is_current then
      oldest = oldest + added
    else
      left = left - added
    end
    oldest = clamped(oldest)
    local passed = oldest <= left and 0 or ticks - floor(left * ticks / oldest)
    return min(min(leaving + window, MAX) + passed * tick, MAX)
  end

  -- Returns the change that adds units to the current bucket. Buckets of another width are converted.
  local function add(added)
    local change = { expired = expired, time = start, cost = added, width = width }
    if log and (high == low or not same_width) then
      local times, totals, entries = {}, {}, 0
      for index = expired, high - 1 do
        local time, sum = entry(log, index)
        time = min(counted_start(time), start)
        if entries == 0 or times[entries - 1] ~= time then
          entries = entries + 1
        end
        times[entries - 1], totals[entries - 1] = time, sum
      end
      change.replaced, change.expired = new_log(log.key, width, base, times, totals, entries), 0
    end
    return change
  end

  local remaining = limit - used
  if op == CHARGE or op == PEEK then
    local needed = max(cost, 1)
    if used + needed > limit then
      return REFUSED, has_room_at(limit - needed, 0), remaining, reset(), NONE, 0
    end
    if cost == 0 then
      return ADMITTED, 0, remaining, reset(), NONE, 0
    end
    local expires = leaves_at(start)
    return ADMITTED, 0, limit - used - cost, expires, WINDOW, start, op == CHARGE and add(cost) or nil, expires
  elseif op == RECORD then
    local newest_count = 0
    if same_width and newest_time == start then
      newest_count = (total - total_before(high - 1)) % WRAP
    elseif not same_width then
      local first = partition_point(log, low, high, function(time)
        return counted_start(time) < start
      end)
      newest_count = (total - total_before(first)) % WRAP
    end
    local amount = min(cost, max((strict == 1 and MAX or floor(MAX / ticks)) - newest_count, 0), MAX - live)
    local left = counted(oldest_sum, newer_sum + amount)
    local free_at = left >= limit and has_room_at(limit - 1, amount) or nil
    if amount == 0 then
      return RECORDED, 0, limit - left, reset(), NONE, 0, nil, nil, nil, nil, free_at
    end
    local expires = leaves_at(start)
    return RECORDED, amount, limit - left, expires, WINDOW, start, add(amount), expires, nil, nil, free_at
  elseif op == CREDIT then
    local given = min(cost, live)
    if given == 0 then
      return DONE, 0, remaining, reset(), NONE, 0
    end
    local from_oldest = min(given, oldest_sum)
    local left = counted(oldest_sum - from_oldest, newer_sum - (given - from_oldest))
    local reset_time = given < live and reset() or now
    return DONE, used - left, limit - left, reset_time, NONE, 0,
      keep_newest(take_oldest(log, expired, high, base, given), high),
      given < live and reset_time or nil
  elseif op ~= REFUND then
    return NOT_SUPPORTED, 0, remaining, reset(), NONE, 0
  end
  if mark ~= WINDOW or high == low or not same_width then
    return NOT_HELD, 0, remaining, reset(), NONE, 0
  end
  local index, why = find_refundable(log, low, expired, high, extra)
  if not index then
    return why, 0, remaining, reset(), NONE, 0
  end
  local _, sum = entry(log, index)
  local refunded = min(cost, (sum - total_before(index)) % WRAP)
  if refunded == 0 then
    return NOT_HELD, 0, remaining, reset(), NONE, 0
  end
  if index < newer then
    oldest_sum = oldest_sum - refunded
  else
    newer_sum = newer_sum - refunded
  end
  local reset_time = now
  if live > refunded then
    reset_time = leaves_at((entry(log, newest_after_refund(log, expired, high, total, index, refunded))))
  end
  local rest_used = counted(oldest_sum, newer_sum)
  return DONE, used - rest_used, max(limit - rest_used, 0), reset_time, NONE, 0,
    { refunded = refunded, index = index }
end
