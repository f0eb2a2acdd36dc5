-- Sliding window over buckets, the oldest counted whole or by its overlap. Twin of core's sliding_window.rs.
-- State: bucket, newest; a count for each bucket, newest first. Numbers: limit, bucket, buckets, strict (0 or 1), tick.

-- When so much of `counts`, the newest of them starting at `start`, has left that at most `room` counts.
local function leaves(counts, start, room, length, buckets, strict, tick)
  local ticks = length / tick
  local newer = { [0] = 0 }
  for age = 1, buckets do
    newer[age] = min(newer[age - 1] + counts[age - 1], MAX)
  end
  for ahead = 0, buckets do
    local oldest_age = buckets - ahead
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
        return min(min(start + ahead * length, MAX) + passed * tick, MAX)
      end
    end
  end
  return min(start + (buckets + 1) * length, MAX)
end

local function sliding_window(state, now, op, cost, _, extra, mark, at)
  local limit, length, buckets, strict, tick = unpack_from('<ddddd', batch, at)
  local ticks = length / tick
  local count_max = strict == 1 and MAX or floor(MAX / ticks)
  local start = now - now % length
  local counts = {}
  for age = 0, buckets do
    counts[age] = 0
  end
  -- A bucket of another length moves whole to where its last instant lies. The newest may reach past the present one:
  -- it is kept apart until something is written, so that a wait told now is still right when it is over.
  local ahead_at, ahead = nil, 0
  if state then
    headed(state, 24)
    local kept, cut, newest = unpack_from('<I6I8I8', state, 3)
    within(0, kept, 0, 1441)
    sized(state, 24 + 8 * kept)
    within(1, cut, 1, MAX)
    within(2, newest, 0, MAX)
    now = max(now, newest)
    start = now - now % length
    local old = { unpack_from('<' .. ('I8'):rep(kept), state, 25) }
    for age = 0, kept - 1 do
      local count = old[age + 1]
      within(3 + age, count, 0, MAX)
      local first = newest - age * cut
      if count > 0 and first >= 0 then
        local moved = min(first + cut - 1, MAX)
        moved = moved - moved % length
        if moved > start then
          ahead_at, ahead = moved, min(count, count_max)
        else
          local moved_age = (start - moved) / length
          if moved_age <= buckets then
            counts[moved_age] = min(counts[moved_age] + count, count_max)
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
    return min(sum + oldest + ahead, MAX)
  end

  local function reset()
    local newest = ahead_at
    if not newest then
      for age = 0, buckets do
        if counts[age] > 0 then
          newest = max(start - age * length, 0)
          break
        end
      end
    end
    return newest and min(newest + (buckets + 1) * length, MAX) or now
  end

  local counted = used()
  local verdict, number, mark_kind, mark_at = NOT_SUPPORTED, 0, NONE, 0
  local writes = false
  if op == CHARGE or op == PEEK then
    local needed = max(cost, 1)
    if counted + needed > limit then
      verdict = REFUSED
      local room = limit - needed
      if not ahead_at then
        number = leaves(counts, start, room, length, buckets, strict, tick)
      elseif ahead > room then
        -- What lies ahead is the last to leave: the rest is gone by then.
        local alone = { [0] = ahead }
        for age = 1, buckets do
          alone[age] = 0
        end
        number = leaves(alone, ahead_at, room, length, buckets, strict, tick)
      else
        number = leaves(counts, start, room - ahead, length, buckets, strict, tick)
      end
    else
      verdict = ADMITTED
      if cost > 0 then
        counts[0] = min(counts[0] + cost, count_max)
        counted, writes, mark_kind, mark_at = counted + cost, true, WINDOW, start
      end
    end
  elseif op == REFUND then
    verdict = NOT_HELD
    if mark == WINDOW and extra <= start and extra % length == 0 then
      local age = (start - extra) / length
      if age <= buckets and counts[age] > 0 then
        local given = min(cost, counts[age])
        counts[age] = counts[age] - given
        counted, verdict, number, writes = used(), DONE, given, true
      end
    end
  end

  if not writes then
    return verdict, number, max(limit - counted, 0), reset(), NONE, 0
  end
  if ahead_at then
    counts[0] = min(counts[0] + ahead, count_max)
    ahead_at = nil
  end
  local dies = reset()
  local form = '<BBI6I8I8' .. ('I8'):rep(buckets + 1)
  local change = pack(form, 1, 2, buckets + 1, length, start, unpack(counts, 0, buckets))
  return verdict, number, max(limit - counted, 0), dies, mark_kind, mark_at, change, dies
end
