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

-- Returns the index of the last entry that must leave before `needed` units fit. `excess` is by how many entries the log
-- will exceed its bound with one more entry, less 1.
local function last_to_leave(log, expired, high, total, needed, limit, excess)
  -- Usually the oldest entries free enough.
  local freeing = search_from_oldest(log, expired, high, function(_, before)
    return (total - before) % WRAP + needed > limit
  end)
  if excess >= 0 then
    freeing = max(freeing, expired + excess)
  end
  return freeing
end

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

  -- Without room for one more entry nothing is left, but there may be an overdraft.
  local remaining = (room or used > limit) and limit - used or 0
  if op == CHARGE or op == PEEK then
    local needed = max(cost, 1)
    if used + needed > limit or not room then
      local freeing, retry = last_to_leave(log, expired, high, total, needed, limit, live - entries), now
      if freeing < high then
        retry = min(entry(log, freeing) + window, MAX)
      end
      return REFUSED, retry, remaining, reset(), NONE, 0
    end
    if cost == 0 then
      return ADMITTED, 0, remaining, reset(), NONE, 0
    end
    local expires = min(now + window, MAX)
    remaining = max(limit - used - cost, 0)
    return ADMITTED, 0, remaining, expires, AT, now, { expired = expired, time = now, cost = cost }, expires
  elseif op == RECORD then
    local amount = min(cost, MAX - used)
    if amount == 0 then
      local free_at
      if not room or used >= limit then
        local freeing = last_to_leave(log, expired, high, total, 1, limit, live - entries)
        free_at = freeing < high and min(entry(log, freeing) + window, MAX) or now
      end
      return RECORDED, 0, remaining, reset(), NONE, 0, nil, nil, nil, nil, free_at
    end
    local expires, free_at = min(now + window, MAX), nil
    if used + amount >= limit then
      local after = room and newest ~= now and high + 1 or high
      local freeing = last_to_leave(log, expired, high, total, amount + 1, limit, after - expired - entries)
      free_at = freeing + 1 < after and min(entry(log, freeing) + window, MAX) or expires
    end
    return RECORDED, amount, limit - used - amount, expires, AT, now,
      { expired = expired, time = now, cost = amount, moves = not room }, expires, nil, nil, free_at
  elseif op == CREDIT then
    local given = min(cost, used)
    if given == 0 then
      return DONE, 0, remaining, reset(), NONE, 0
    end
    local change = take_oldest(log, expired, high, base, given)
    if given == used then
      return DONE, given, limit, now, NONE, 0, change
    end
    room = room or high - change.dropped < entries
    return DONE, given, room and limit - used + given or 0, reset(), NONE, 0, change, min(newest + window, MAX)
  elseif op ~= REFUND then
    return NOT_SUPPORTED, 0, remaining, reset(), NONE, 0
  end
  if mark ~= AT or high == 0 then
    return NOT_HELD, 0, remaining, reset(), NONE, 0
  end
  local index, why = find_refundable(log, low, expired, high, extra)
  if not index then
    return why, 0, remaining, reset(), NONE, 0
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
    reset_time = min(entry(log, newest_after_refund(log, expired, high, total, index, refunded)) + window, MAX)
  end
  remaining = room and limit - left or 0
  return DONE, refunded, remaining, reset_time, NONE, 0, { refunded = refunded, index = index }
end
