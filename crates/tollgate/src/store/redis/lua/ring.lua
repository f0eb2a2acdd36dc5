-- The ring of entries that a sliding log and a sliding window with many buckets share. sliding_log.lua and
-- bucket_ring.lua have the layouts.
--
-- Example: open_log(1, bytes) returns a log whose entries entry(log, 0) to entry(log, log.high - 1) are read on demand;
-- edit_log(log, 1, { expired = 0, time = 2500000, cost = 1 }) adds a charge in memory, and write_log stores it.

local WRAP = 9007199254740992
-- Bytes of the first read: the head and 16 entries. A log that fits is written as a whole.
local FIRST_READ = 256
-- More entries than any limit allows.
local SLOTS_MAX = 1048576
-- The head of a sliding window's ring stores first + FIRST_END * slots in one word, and the bucket width in the next.
local FIRST_END = 16777216

-- Returns time and running total of an entry. Index 0 is the oldest entry that was stored. Reads each entry once.
local function entry(log, index)
  local time = log.times[index]
  if not time then
    local at, total = 32 + 14 * ((log.first + index) % log.slots), nil
    local bytes, from = log.bytes, at + 1
    if at + 14 > #bytes then
      bytes, from = call('GETRANGE', KEYS[log.key], at, at + 13), 1
      if #bytes < 14 then
        corrupt(LENGTH, 32 + 14 * log.slots, at + #bytes)
      end
    end
    time, total = unpack_from('<I7I7', bytes, from)
    check_range(floor(at / 8), time, 0, MAX)
    check_range(floor((at + 7) / 8), total, 0, MAX)
    log.times[index], log.totals[index] = time, total
  end
  return time, log.totals[index]
end

-- Binary search: returns the first index from `low` to `high` for which `holds(time, total)` is false.
local function partition_point(log, low, high, holds)
  while low < high do
    local middle = floor((low + high) / 2)
    if holds(entry(log, middle)) then
      low = middle + 1
    else
      high = middle
    end
  end
  return low
end

-- Returns the first index from `low` to `high` for which `holds(time, total)` is false. Usually few entries have expired,
-- so it searches from the oldest in steps that double.
local function search_from_oldest(log, low, high, holds)
  local reach = 1
  while low < high and holds(entry(log, low)) do
    local next_index = min(low + reach, high)
    if next_index < high and not holds(entry(log, next_index)) or next_index == high then
      return partition_point(log, low + 1, next_index, holds)
    end
    low, reach = next_index, reach * 2
  end
  return low
end

-- Returns the index of the newest entry with units. `total` is the newest total. Entries after it were refunded in full,
-- which is rare.
local function newest_with_units(log, low, high, total)
  if high - 1 > low then
    local _, before = entry(log, high - 2)
    if before == total then
      return partition_point(log, low, high, function(_, sum)
        return sum ~= total
      end)
    end
  end
  return high - 1
end

-- Returns the index of the entry at `time`, or nil and why it is declined. Entries from `low` to `expired` do not count.
local function find_refundable(log, low, expired, high, time)
  local index = partition_point(log, low, high, function(found)
    return found < time
  end)
  if index == high or entry(log, index) ~= time or index < expired then
    return nil, NOT_HELD
  end
  if index + 16 < high then
    return nil, TOO_OLD
  end
  for above = index, high - 1 do
    -- The refund changes all of them. Read them now, so that a corrupt one fails the Plan before any change.
    entry(log, above)
  end
  return index
end

-- Returns the index of the newest entry with units after `refunded` units left the entry at `index`. `total` is the
-- newest total before. Units must be left.
local function newest_after_refund(log, expired, high, total, index, refunded)
  local rest = (total - refunded) % WRAP
  -- The totals from the refunded entry on decrease by the same amount. Those before it stay.
  local newest = partition_point(log, index, high, function(_, above)
    return above ~= total
  end)
  if newest > index then
    return newest
  end
  return partition_point(log, expired, index, function(_, below)
    return below ~= rest
  end)
end

-- Checks the head and returns the log. `bytes` is the first read of the string.
local function open_log(key, bytes)
  check_head(bytes, 32)
  local kind, count, base, first, slots = unpack_from('<BI6I8I8I8', bytes, 2)
  local width
  if kind == RING then
    width = slots
    check_range(3, width, 1, MAX)
    slots = floor(first / FIRST_END)
    first = first % FIRST_END
  end
  check_range(1, base, 0, MAX)
  check_range(3, slots, 0, SLOTS_MAX)
  check_range(0, count, 0, slots)
  check_range(2, first, 0, max(slots - 1, 0))
  local length = 32 + 14 * slots
  if #bytes < length and #bytes == FIRST_READ then
    -- If the string has the right length, this returns its last byte and no more. `entry` checks the rest when it
    -- reads.
    local last = call('GETRANGE', KEYS[key], length - 1, length)
    if #last ~= 1 then
      corrupt(LENGTH, length, #last)
    end
  else
    check_length(bytes, length)
  end
  return { key = key, width = width, bytes = bytes, base = base, first = first, slots = slots, low = 0, high = count,
    times = {}, totals = {}, edited = {} }
end

-- Returns a log in memory that is not stored yet, with these times and totals, from index 0.
local function new_log(key, width, base, times, totals, count)
  local edited = {}
  for index = 0, count - 1 do
    edited[index] = true
  end
  local slots = count > 0 and count + 1 + floor(count / 8) or 0
  return { key = key, width = width, bytes = ('\0'):rep(32 + 14 * slots), base = base, first = 0, slots = slots, low = 0,
    high = count, times = times, totals = totals, edited = edited, rewritten = true }
end

-- Packs all entries in order, oldest first. `log.bytes` must hold the whole log.
local function pack_entries(log)
  local count, oldest_edit = log.high - log.low, log.high
  for index in pairs(log.edited) do
    oldest_edit = min(oldest_edit, index)
  end
  oldest_edit = max(oldest_edit, log.low)
  local parts, unedited = {}, oldest_edit - log.low
  if unedited > 0 then
    local at = (log.first + log.low) % log.slots
    local before_wrap = min(unedited, log.slots - at)
    parts[1] = log.bytes:sub(33 + 14 * at, 32 + 14 * (at + before_wrap))
    parts[2] = log.bytes:sub(33, 32 + 14 * (unedited - before_wrap))
  end
  for index = oldest_edit, log.high - 1 do
    parts[#parts + 1] = pack('<I7I7', entry(log, index))
  end
  return table.concat(parts), count
end

-- Rewrites the ring with room for one more entry plus an eighth of the entries.
local function resize(log)
  if #log.bytes < 32 + 14 * log.slots then
    log.bytes = call('GETRANGE', KEYS[log.key], 0, -1)
    check_length(log.bytes, 32 + 14 * log.slots)
  end
  local packed, count = pack_entries(log)
  log.slots = min(count + 1 + floor(count / 8), SLOTS_MAX)
  log.bytes = ('\0'):rep(32) .. packed .. ('\0'):rep(14 * (log.slots - count))
  log.first, log.rewritten = -log.low, true
end

-- Returns the change that takes `given` units out of the oldest entries: those without units are dropped, and the next
-- one counts from a higher total. `base` is the total before the entry `expired`.
local function take_oldest(log, expired, high, base, given)
  local dropped = search_from_oldest(log, expired, high, function(_, total)
    return (total - base) % WRAP <= given
  end)
  return { dropped = dropped, base = (base - (WRAP - given)) % WRAP }
end

-- Applies a change to the log in memory: adds `cost` at `time`, or in the newest entry if it `moves` there; refunds units
-- of the entry at `index`; or drops the oldest entries.
local function edit_log(log, key, change)
  log = change.replaced or log or new_log(key, change.width, 0, {}, {}, 0)
  if change.dropped then
    log.base, log.low = change.base, change.dropped
    return log
  end
  if change.refunded then
    for index = change.index, log.high - 1 do
      local _, total = entry(log, index)
      log.totals[index], log.edited[index] = (total - change.refunded) % WRAP, true
    end
    return log
  end
  if change.expired > log.low then
    local _, total = entry(log, change.expired - 1)
    log.base, log.low = total, change.expired
  end
  local newest, total = nil, log.base
  if log.high > log.low then
    newest, total = entry(log, log.high - 1)
  end
  if log.width then
    -- Another rule may have recorded enough units that the sum would exceed 2^53 - 1. Then the oldest units are cut.
    local excess = (total - log.base) % WRAP - (MAX - change.cost)
    if excess > 0 then
      local cut = take_oldest(log, log.low, log.high, log.base, excess)
      log.base, log.low = cut.base, cut.dropped
      newest = log.high > log.low and newest or nil
    end
  end
  -- total + cost could exceed 2^53 and be inexact. This difference is exact.
  total = (total - (WRAP - change.cost)) % WRAP
  local index = log.high - 1
  if newest ~= change.time and not change.moves then
    local count = log.high - log.low
    if count >= log.slots or (log.slots > 64 and count < log.slots / 4) then
      resize(log)
    end
    index = log.high
    log.high = index + 1
  end
  log.times[index], log.totals[index], log.edited[index] = change.time, total, true
  return log
end

-- Returns the head of a log whose oldest entry is in the slot `first`.
local function pack_head(log, first)
  local count = log.high - log.low
  if log.width then
    return pack('<BBI6I8I8I8', 1, RING, count, log.base, first + FIRST_END * log.slots, log.width)
  end
  return pack('<BBI6I8I8I8', 1, 3, count, log.base, first, log.slots)
end

-- Writes the changed parts of a log, or all of it if it is short or was resized. Keeps the TTL if `ttl` is nil.
local function write_log(log, ttl)
  local key = KEYS[log.key]
  local count = log.high - log.low
  if log.rewritten or #log.bytes >= 32 + 14 * log.slots then
    local packed = pack_entries(log)
    log.first = -log.low
    local whole = pack_head(log, 0) .. packed .. ('\0'):rep(14 * (log.slots - count))
    if ttl then
      call('SET', key, whole, 'PX', ttl)
    else
      call('SET', key, whole, 'KEEPTTL')
    end
    return
  end
  call('SETRANGE', key, 0, pack_head(log, (log.first + log.low) % log.slots))
  for index in pairs(log.edited) do
    if index >= log.low then
      local at = 32 + 14 * ((log.first + index) % log.slots)
      call('SETRANGE', key, at, pack('<I7I7', log.times[index], log.totals[index]))
    end
  end
  if ttl then
    call('PEXPIRE', key, ttl)
  end
end

