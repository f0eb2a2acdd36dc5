-- Sliding log: at most `limit` units in any window, exactly. Twin of core's sliding_log.rs; prelude.lua has the
-- contract, but `state` and `change` are tables here: the log that open_log returns, and the arguments of edit_log.
--
-- State
--   BBI6  version 1, kind 3, number of entries
--   I8    running total before the oldest entry
--   I8    slot of the oldest entry
--   I8    number of slots
--   I7I7  time and running total of an entry, for each slot of the ring
--
-- Numbers, doubles: limit, window, largest number of entries
--
-- Example: charges of 1 at 2500000 and of 2 at 2600000 leave the entries (2500000, 1) and (2600000, 3).
--
-- A log may hold 100,000 entries, so it is edited in place. A check reads the head and, by binary search, the few
-- entries that it needs. An admission writes the head and one entry. A full ring is rewritten an eighth larger. That
-- copies the log, but so rarely that each admission pays for eight entries. Running totals wrap at 2^53.

local function sliding_log(log, now, op, cost, _, extra, mark, numbers_at)
  local limit, window, entries = unpack_from('<ddd', batch, numbers_at)
  local low, high, expired, base, used, newest, total = 0, 0, 0, 0, 0, nil, 0
  if log and log.high > log.low then
    low, high = log.low, log.high
    newest, total = entry(log, high - 1)
    now = max(now, newest)
    expired, base = low, log.base
    local function has_expired(time)
      return min(time + window, MAX) <= now
    end
    expired = search_from_oldest(log, expired, high, has_expired)
    if expired > low then
      local _, dropped = entry(log, expired - 1)
      base = dropped
    end
    used = (total - base) % WRAP
  end
  local live = high - expired
  local room = newest == now or live < entries

  -- Returns when all units are back: when the newest entry with units expires. Entries after it were refunded in full.
  local function reset()
    if used == 0 then
      return now
    end
    return min(entry(log, newest_with_units(log, expired, high, total)) + window, MAX)
  end

  local remaining = room and max(limit - used, 0) or 0
  if op == CHARGE or op == PEEK then
    local needed = max(cost, 1)
    if used + needed > limit or not room then
      -- Usually the oldest entries free enough.
      local freeing = search_from_oldest(log, expired, high, function(_, before)
        return (total - before) % WRAP + needed > limit
      end)
      if live >= entries then
        freeing = max(freeing, expired + live - entries)
      end
      local retry = now
      if freeing < high then
        retry = min(entry(log, freeing) + window, MAX)
      end
      return REFUSED, retry, remaining, reset(), NONE, 0
    end
    if cost == 0 then
      return ADMITTED, 0, remaining, reset(), NONE, 0
    end
    local expires = min(now + window, MAX)
    remaining = room and max(limit - used - cost, 0) or 0
    return ADMITTED, 0, remaining, expires, AT, now, { expired = expired, time = now, cost = cost }, expires
  elseif op ~= REFUND then
    return NOT_SUPPORTED, 0, remaining, reset(), NONE, 0
  end
  if mark ~= AT or high == 0 then
    return NOT_HELD, 0, remaining, reset(), NONE, 0
  end
  local index = partition_point(log, low, high, function(time)
    return time < extra
  end)
  if index == high or entry(log, index) ~= extra or index < expired then
    return NOT_HELD, 0, remaining, reset(), NONE, 0
  end
  if index + 16 < high then
    return TOO_OLD, 0, remaining, reset(), NONE, 0
  end
  for above = index, high - 1 do
    -- The refund changes all of them. Read them now, so that a corrupt one fails the Plan before any change.
    entry(log, above)
  end
  local before = base
  if index > expired then
    local _, sum = entry(log, index - 1)
    before = sum
  end
  local _, sum = entry(log, index)
  local refunded = min(cost, (sum - before) % WRAP)
  if refunded == 0 then
    return NOT_HELD, 0, remaining, reset(), NONE, 0
  end
  local left = used - refunded
  local reset_time = now
  if left > 0 then
    local rest = (total - refunded) % WRAP
    -- The totals from the refunded entry on decrease by the same amount. Those before it stay.
    local newest_counted = partition_point(log, index, high, function(_, above)
      return above ~= total
    end)
    if newest_counted == index then
      newest_counted = partition_point(log, expired, index, function(_, below)
        return below ~= rest
      end)
    end
    reset_time = min(entry(log, newest_counted) + window, MAX)
  end
  remaining = room and max(limit - left, 0) or 0
  return DONE, refunded, remaining, reset_time, NONE, 0, { refunded = refunded, index = index }
end
