-- Sliding log: at most `limit` units in any window, exactly. Twin of core's sliding_log.rs.
-- State: base, first, slots; a ring of `slots` entries of 14 bytes: time and running total, 7 bytes each. Numbers: limit,
-- window, entries.
--
-- The log may hold 100,000 entries, so it is edited in place. A check reads the head and, by binary search, the few
-- entries it needs; an admission writes the head and one entry. When the ring is full it is cut anew, an eighth larger:
-- that copies the log, once in so many admissions that each pays for eight entries. Running totals wrap at 2^53.

local WRAP = 9007199254740992
-- So many bytes are read at once: head and 16 entries. A log that short is written whole.
local PEEKED = 256
-- More than any limit lets a log have.
local SLOTS_MAX = 1048576

-- The entry at a place in the log, read once.
local function entry(log, place)
  local time = log.times[place]
  if not time then
    local at, total = 32 + 14 * ((log.first + place) % log.slots), nil
    local bytes, from = log.bytes, at + 1
    if at + 14 > #bytes then
      bytes, from = call('GETRANGE', KEYS[log.key], at, at + 13), 1
      if #bytes < 14 then
        corrupt(LENGTH, 32 + 14 * log.slots, at + #bytes)
      end
    end
    time, total = unpack_from('<I7I7', bytes, from)
    within(floor(at / 8), time, 0, MAX)
    within(floor((at + 7) / 8), total, 0, MAX)
    log.times[place], log.totals[place] = time, total
  end
  return time, log.totals[place]
end

-- The first place from `low` up to `high` for which `holds(time, total)` is false, where it holds for all before.
local function partition(log, low, high, holds)
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

-- The log behind the first bytes of its string, nil if there is nothing in it.
local function open_log(key, bytes)
  headed(bytes, 32)
  local count, base, first, slots = unpack_from('<I6I8I8I8', bytes, 3)
  within(1, base, 0, MAX)
  within(3, slots, 0, SLOTS_MAX)
  within(0, count, 0, slots)
  within(2, first, 0, max(slots - 1, 0))
  local length = 32 + 14 * slots
  if #bytes < length and #bytes == PEEKED then
    -- Of a string of just this length, one byte is left here. Whatever else is wrong is found before anything is changed.
    local left = call('GETRANGE', KEYS[key], length - 1, length)
    if #left ~= 1 then
      corrupt(LENGTH, length, #left)
    end
  else
    sized(bytes, length)
  end
  return { key = key, bytes = bytes, base = base, first = first, slots = slots, low = 0, high = count,
    times = {}, totals = {}, edited = {} }
end

-- All entries in a row, as they are written. Everything must have been read before.
local function in_a_row(log)
  local count, oldest_edit = log.high - log.low, log.high
  for place in pairs(log.edited) do
    oldest_edit = min(oldest_edit, place)
  end
  oldest_edit = max(oldest_edit, log.low)
  local parts, clean = {}, oldest_edit - log.low
  if clean > 0 then
    local at = (log.first + log.low) % log.slots
    local straight = min(clean, log.slots - at)
    parts[1] = log.bytes:sub(33 + 14 * at, 32 + 14 * (at + straight))
    parts[2] = log.bytes:sub(33, 32 + 14 * (clean - straight))
  end
  for place = oldest_edit, log.high - 1 do
    parts[#parts + 1] = pack('<I7I7', entry(log, place))
  end
  return table.concat(parts), count
end

-- Cuts the ring anew, with room for one more entry and an eighth on top.
local function recut(log)
  if #log.bytes < 32 + 14 * log.slots then
    log.bytes = call('GETRANGE', KEYS[log.key], 0, -1)
    sized(log.bytes, 32 + 14 * log.slots)
  end
  local row, count = in_a_row(log)
  log.slots = min(count + 1 + floor(count / 8), SLOTS_MAX)
  log.bytes = ('\0'):rep(32) .. row .. ('\0'):rep(14 * (log.slots - count))
  log.first, log.whole = -log.low, true
end

-- Adds `cost` at `time`, or takes it out of the entry at a place. Reads what it needs, writes nothing yet.
local function edit_log(log, key, change)
  log = log or { key = key, bytes = ('\0'):rep(32), base = 0, first = 0, slots = 0, low = 0, high = 0,
    times = {}, totals = {}, edited = {} }
  if change.taken then
    for place = change.place, log.high - 1 do
      local _, total = entry(log, place)
      log.totals[place], log.edited[place] = (total - change.taken) % WRAP, true
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
  -- The sum of two such numbers may be inexact; this way around it is not.
  total = (total - (WRAP - change.cost)) % WRAP
  local place = log.high - 1
  if newest ~= change.time then
    local count = log.high - log.low
    if count >= log.slots or (log.slots > 64 and count < log.slots / 4) then
      recut(log)
    end
    place = log.high
    log.high = place + 1
  end
  log.times[place], log.totals[place], log.edited[place] = change.time, total, true
  return log
end

-- Writes an edited log.
local function write_log(log, ttl)
  local key = KEYS[log.key]
  local count = log.high - log.low
  local head = pack('<BBI6I8I8I8', 1, 3, count, log.base, (log.first + log.low) % max(log.slots, 1), log.slots)
  if log.whole or #log.bytes >= 32 + 14 * log.slots then
    local row = in_a_row(log)
    log.first = -log.low
    head = pack('<BBI6I8I8I8', 1, 3, count, log.base, 0, log.slots)
    call('SET', key, head .. row .. ('\0'):rep(14 * (log.slots - count)), 'PX', ttl)
    return
  end
  call('SETRANGE', key, 0, head)
  for place in pairs(log.edited) do
    if place >= log.low then
      local at = 32 + 14 * ((log.first + place) % log.slots)
      call('SETRANGE', key, at, pack('<I7I7', log.times[place], log.totals[place]))
    end
  end
  call('PEXPIRE', key, ttl)
end

local function sliding_log(log, now, op, cost, _, extra, mark, at)
  local limit, window, entries = unpack_from('<ddd', batch, at)
  local low, high, expired, base, used, newest, total = 0, 0, 0, 0, 0, nil, 0
  if log and log.high > log.low then
    low, high = log.low, log.high
    newest, total = entry(log, high - 1)
    now = max(now, newest)
    expired, base = low, log.base
    local function gone(time)
      return min(time + window, MAX) <= now
    end
    -- Most checks find little to drop: look at the oldest few first, then twice as far each time.
    local reach = 1
    while expired < high and gone(entry(log, expired)) do
      local next_place = min(expired + reach, high)
      if next_place < high and not gone(entry(log, next_place)) or next_place == high then
        expired = partition(log, expired + 1, next_place, gone)
        break
      end
      expired, reach = next_place, reach * 2
    end
    if expired > low then
      local _, dropped = entry(log, expired - 1)
      base = dropped
    end
    used = (total - base) % WRAP
  end
  local live = high - expired
  local room = newest == now or live < entries

  -- When everything is back: the newest cost that counts has left. Entries above it were refunded whole.
  local function reset()
    if used == 0 then
      return now
    end
    local place = partition(log, expired, high, function(_, sum)
      return sum ~= total
    end)
    return min(entry(log, place) + window, MAX)
  end

  local remaining = room and max(limit - used, 0) or 0
  if op == CHARGE or op == PEEK then
    local needed = max(cost, 1)
    if used + needed > limit or not room then
      local leaves = partition(log, low, high, function(_, before)
        return (total - before) % WRAP + needed > limit
      end)
      if live >= entries then
        leaves = max(leaves, expired + live - entries)
      end
      leaves = max(leaves, expired)
      local retry = now
      if leaves < high then
        retry = min(entry(log, leaves) + window, MAX)
      end
      return REFUSED, retry, remaining, reset(), NONE, 0
    end
    if cost == 0 then
      return ADMITTED, 0, remaining, reset(), NONE, 0
    end
    local dies = min(now + window, MAX)
    remaining = room and max(limit - used - cost, 0) or 0
    return ADMITTED, 0, remaining, dies, AT, now, { expired = expired, time = now, cost = cost }, dies
  elseif op ~= REFUND then
    return NOT_SUPPORTED, 0, remaining, reset(), NONE, 0
  end
  if mark ~= AT or high == 0 then
    return NOT_HELD, 0, remaining, reset(), NONE, 0
  end
  local place = partition(log, low, high, function(time)
    return time < extra
  end)
  if place == high or entry(log, place) ~= extra or place < expired then
    return NOT_HELD, 0, remaining, reset(), NONE, 0
  end
  if place + 16 < high then
    return TOO_OLD, 0, remaining, reset(), NONE, 0
  end
  for above = place, high - 1 do
    -- All of them change, so all of them are read before anything does.
    entry(log, above)
  end
  local before = base
  if place > expired then
    local _, sum = entry(log, place - 1)
    before = sum
  end
  local _, sum = entry(log, place)
  local given = min(cost, (sum - before) % WRAP)
  if given == 0 then
    return NOT_HELD, 0, remaining, reset(), NONE, 0
  end
  local left = used - given
  local back = now
  if left > 0 then
    local rest = (total - given) % WRAP
    -- Above the entry everything moves by the same amount; below it nothing does.
    local top = partition(log, place, high, function(_, above)
      return above ~= total
    end)
    if top == place then
      top = partition(log, expired, place, function(_, below)
        return below ~= rest
      end)
    end
    back = min(entry(log, top) + window, MAX)
  end
  remaining = room and max(limit - left, 0) or 0
  return DONE, given, remaining, back, NONE, 0, { taken = given, place = place }, min(newest + window, MAX)
end
