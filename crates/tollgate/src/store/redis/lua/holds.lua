-- What leases and reservations share: the record of a hold, and units held as sums by end. Twin of core's plan/hold.rs
-- and hold_sums.rs; prelude.lua has the contract of the twins that use it.
--
-- Record of a hold, under a separate key
--   BBI6  version 1, kind 11, status: 0 open, 1 settled, 2 cancelled, 3 settled late
--   c16   generation of the account when the hold was made: the time of its first hold and half of that hold's token
--   I8    end
--   I8    units held, or units booked if it is settled
--
-- Sums by end, the tail of an account's state
--   I8I8  end and units of each pair, in order of the ends; at most 64 pairs
--
-- Example: two leases of weight 1 that end at 3500000 and 3600000 are the pairs (3500000, 1), (3600000, 1).
--
-- The work does not depend on the number of holds.

local OPEN, SETTLED, CANCELLED, SETTLED_LATE = 0, 1, 2, 3
local PAIRS_MAX = 64

-- Returns status, generation, end and units of a record, nil if it does not exist.
local function read_hold(record)
  if not record then
    return nil
  end
  check_length(record, 40)
  local version, kind, status, generation, ends, units = unpack_from('<BBI6c16I8I8', record, 1)
  if version ~= 1 then
    corrupt(VERSION, 0, version)
  end
  if kind ~= 11 then
    corrupt(KIND, 0, kind)
  end
  check_range(0, status, 0, SETTLED_LATE)
  check_range(3, ends, 0, MAX)
  check_range(4, units, 0, MAX)
  return status, generation, ends, units
end

local function pack_hold(status, generation, ends, units)
  return pack('<BBI6c16I8I8', 1, 11, status, generation, ends, units)
end

-- Returns the generation of an account whose first hold has this token.
local function new_generation(now, token)
  return pack('<I8', now) .. token:sub(9)
end

-- Returns the end of a hold of this length that starts at `now`, rounded up to 1/32 of the length.
local function hold_end(now, length)
  local part = max(floor(length / 32), 1)
  return min(ceil_div(min(now + length, MAX), part) * part, MAX)
end

-- Reads the pairs of a state that begin at byte `at`. Returns the ends and units of those that count at `now`, their
-- number and their sum.
local function read_pairs(state, at, count, now)
  local ends, units, live, sum, all, previous = {}, {}, 0, 0, 0, 0
  for pos = at, at + 16 * (count - 1), 16 do
    local pair_end, pair_units = unpack_from('<I8I8', state, pos)
    local word = (pos - 1) / 8
    check_range(word, pair_end, previous + 1, MAX)
    check_range(word + 1, pair_units, 1, MAX - all)
    previous, all = pair_end, all + pair_units
    if pair_end > now then
      live, sum = live + 1, sum + pair_units
      ends[live], units[live] = pair_end, pair_units
    end
  end
  return ends, units, live, sum
end

-- Returns the pairs as bytes.
local function pack_pairs(ends, units)
  local parts = {}
  for index = 1, #ends do
    parts[index] = pack('<I8I8', ends[index], units[index])
  end
  return table.concat(parts)
end

-- Adds units that count until `pair_end`. If all pairs are in use, the next later pair takes them, or the last pair moves
-- out.
local function add_units(ends, units, pair_end, added)
  local count, index = #ends, 1
  while index <= count and ends[index] < pair_end do
    index = index + 1
  end
  if ends[index] == pair_end or count >= PAIRS_MAX and index <= count then
    units[index] = units[index] + added
  elseif count >= PAIRS_MAX then
    ends[count], units[count] = pair_end, units[count] + added
  else
    table.insert(ends, index, pair_end)
    table.insert(units, index, added)
  end
end

-- Takes units from the first pairs at or after `hold_ends`. Returns how many there were.
local function take_units(ends, units, hold_ends, wanted)
  local index, missing = 1, wanted
  while missing > 0 and index <= #ends do
    if ends[index] < hold_ends then
      index = index + 1
    elseif units[index] > missing then
      units[index] = units[index] - missing
      return wanted
    else
      missing = missing - units[index]
      table.remove(ends, index)
      table.remove(units, index)
    end
  end
  return wanted - missing
end

-- Returns the first end by which `excess` units no longer count, nil if there are fewer.
local function ends_by(ends, units, excess)
  for index = 1, #ends do
    if units[index] >= excess then
      return ends[index]
    end
    excess = excess - units[index]
  end
end

