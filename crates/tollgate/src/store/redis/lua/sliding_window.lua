-- Sliding window over buckets. The oldest bucket counts as a whole (strict) or by its overlap with the window.
-- Twin of core's sliding_window.rs; prelude.lua has the contract.
--
-- State
--   BBI6  version 1, kind 2, number of counts: buckets + 1
--   I8    bucket width
--   I8    start of the newest bucket
--   I8    units of each bucket, newest first
--
-- Numbers, doubles: limit, bucket width, buckets, strict (0 or 1), tick
--
-- Example: a charge of 1 at 2500000 under limit 5 and two buckets of 500000 writes width 500000, start 2500000,
-- counts 1, 0, 0.

-- Returns the time at which at most `room` units count. `counts` are the buckets by age; the newest starts at `start`.
local function has_room_at(counts, start, room, width, buckets, strict, tick)
  local ticks = width / tick
  local newer = { [0] = 0 }
  for age = 1, buckets do
    newer[age] = min(newer[age - 1] + counts[age - 1], MAX)
  end
  for shift = 0, buckets do
    local oldest_age = buckets - shift
    local left = room - newer[oldest_age]
    if left >= 0 then
      local oldest = counts[oldest_age]
      local passed = ticks
      if oldest <= left then
        passed = 0
      elseif strict == 0 then
        passed = ticks - floor(left * ticks / oldest)
      end
      if passed < ticks then
        return min(min(start + shift * width, MAX) + passed * tick, MAX)
      end
    end
  end
  return min(start + (buckets + 1) * width, MAX)
end

-- The same beside the units of a bucket in the future, if there is one.
local function has_room_beside_at(counts, start, ahead_start, ahead_count, room, width, buckets, strict, tick)
  if not ahead_start then
    return has_room_at(counts, start, room, width, buckets, strict, tick)
  elseif ahead_count > room then
    -- The units of the future bucket leave last. All others are gone by then.
    local alone = { [0] = ahead_count }
    for age = 1, buckets do
      alone[age] = 0
    end
    return has_room_at(alone, ahead_start, room, width, buckets, strict, tick)
  end
  return has_room_at(counts, start, room - ahead_count, width, buckets, strict, tick)
end

local function sliding_window(state, now, op, cost, _, extra, mark, numbers_at)
  local limit, width, buckets, strict, tick = unpack_from('<ddddd', batch, numbers_at)
  local ticks = width / tick
  local count_max = strict == 1 and MAX or floor(MAX / ticks)
  local start = now - now % width
  local counts = {}
  for age = 0, buckets do
    counts[age] = 0
  end
  -- If the rule's bucket width has changed, the units of a stored bucket move to the bucket of its last microsecond.
  -- That bucket may be in the future. Its units stay separate until the next write, so that a retry time returned now
  -- stays right.
  local ahead_start, ahead_count = nil, 0
  local stored_count, stored_width, newest, stored_counts
  if state then
    check_head(state, 24)
    stored_count, stored_width, newest = unpack_from('<I6I8I8', state, 3)
    check_range(0, stored_count, 0, 1441)
    check_length(state, 24 + 8 * stored_count)
    check_range(1, stored_width, 1, MAX)
    check_range(2, newest, 0, MAX)
    now = max(now, newest)
    start = now - now % width
    stored_counts = { unpack_from('<' .. ('I8'):rep(stored_count), state, 25) }
    for age = 0, stored_count - 1 do
      local count = stored_counts[age + 1]
      check_range(3 + age, count, 0, MAX)
      local stored_start = newest - age * stored_width
      if count > 0 and stored_start >= 0 then
        local new_start = min(stored_start + stored_width - 1, MAX)
        new_start = new_start - new_start % width
        if new_start > start then
          ahead_start, ahead_count = new_start, min(count, count_max)
        else
          local new_age = (start - new_start) / width
          if new_age <= buckets then
            counts[new_age] = min(counts[new_age] + count, count_max)
          end
        end
      end
    end
  end

  local function used()
    local sum = 0
    for age = 0, buckets - 1 do
      sum = min(sum + counts[age], MAX)
    end
    local oldest = counts[buckets]
    if strict == 0 then
      oldest = ceil_div(oldest * (ticks - floor((now - start) / tick)), ticks)
    end
    return min(sum + oldest + ahead_count, MAX)
  end

  local function reset()
    local newest = ahead_start
    if not newest then
      for age = 0, buckets do
        if counts[age] > 0 then
          newest = max(start - age * width, 0)
          break
        end
      end
    end
    return newest and min(newest + (buckets + 1) * width, MAX) or now
  end

  local counted = used()
  local verdict, number, mark_kind, mark_time, free_at = NOT_SUPPORTED, 0, NONE, 0, nil
  local writes, is_emptied = false, false
  if op == CHARGE or op == PEEK then
    local needed = max(cost, 1)
    if counted + needed > limit then
      verdict = REFUSED
      number = has_room_beside_at(counts, start, ahead_start, ahead_count, limit - needed, width, buckets, strict, tick)
    else
      verdict = ADMITTED
      if cost > 0 then
        counts[0] = min(counts[0] + cost, count_max)
        counted, writes, mark_kind, mark_time = counted + cost, true, WINDOW, start
      end
    end
  elseif op == RECORD then
    verdict = RECORDED
    local newest_count = min(counts[0] + ahead_count, count_max)
    local sum = newest_count
    for age = 1, buckets do
      sum = min(sum + counts[age], MAX)
    end
    number = min(cost, count_max - newest_count, MAX - sum)
    if number > 0 then
      counts[0], ahead_start, ahead_count = newest_count + number, nil, 0
      writes, mark_kind, mark_time = true, WINDOW, start
    end
    counted = used()
    if counted >= limit then
      free_at = has_room_beside_at(counts, start, ahead_start, ahead_count, limit - 1, width, buckets, strict, tick)
    end
  elseif op == CREDIT then
    verdict = DONE
    if cost > 0 and counted > 0 then
      counts[0], ahead_start, ahead_count = min(counts[0] + ahead_count, count_max), nil, 0
      local missing = cost
      for age = buckets, 0, -1 do
        local taken = min(missing, counts[age])
        counts[age], missing = counts[age] - taken, missing - taken
      end
      local rest = used()
      number, counted, writes, is_emptied = max(counted - rest, 0), rest, true, rest == 0
    end
  elseif op == REFUND then
    verdict = NOT_HELD
    if state and (stored_width ~= width or stored_count ~= buckets + 1) then
      verdict = WINDOW_CHANGED
    elseif state and mark == WINDOW and extra <= newest and (newest - extra) % width == 0 then
      -- The widths are equal, so the buckets differ from the stored ones only in their age.
      local age, stored_age = (start - extra) / width, (newest - extra) / width
      if age <= buckets and stored_age <= buckets and stored_counts[stored_age + 1] > 0 then
        local left = stored_counts[stored_age + 1] - min(cost, stored_counts[stored_age + 1])
        stored_counts[stored_age + 1], counts[age] = left, min(left, count_max)
        local rest = used()
        local layout = '<BBI6I8I8' .. ('I8'):rep(stored_count)
        return DONE, counted - rest, max(limit - rest, 0), reset(), NONE, 0,
          pack(layout, 1, 2, stored_count, width, newest, unpack(stored_counts))
      end
    end
  end

  if not writes then
    return verdict, number, limit - counted, reset(), NONE, 0, nil, nil, nil, nil, free_at
  end
  if ahead_start then
    counts[0] = min(counts[0] + ahead_count, count_max)
    ahead_start = nil
  end
  local expires = reset()
  local layout = '<BBI6I8I8' .. ('I8'):rep(buckets + 1)
  local change = pack(layout, 1, 2, buckets + 1, width, start, unpack(counts, 0, buckets))
  return verdict, number, limit - counted, expires, mark_kind, mark_time, change, not is_emptied and expires or nil, nil,
    nil, free_at
end
