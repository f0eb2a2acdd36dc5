-- Concurrency: leases that expire by themselves. Twin of core's concurrency.rs; prelude.lua has the contract, holds.lua
-- the record of a lease and the sums.
--
-- State
--   BBI6  version 1, kind 9, number of pairs
--   I8    latest time seen
--   c16   generation: see holds.lua
--   I8I8  end and units of each pair, in order of the ends
--
-- Numbers, doubles: limit, length of a lease
--
-- Example: a charge of 1 at 2500000 under a lease of 1000000 writes time 2500000, the pair (3500000, 1) and a record with
-- the end 3500000: 1000000 / 32 = 31250, of which 3500000 is a multiple.

local function concurrency(state, now, op, cost, token, _, _, numbers_at, record)
  local limit, lease = unpack_from('<dd', batch, numbers_at)
  local ends, units, live, in_use, generation = {}, {}, 0, 0, nil
  if state then
    check_head(state, 32)
    local count, seen
    count, seen, generation = unpack_from('<I6I8c16', state, 3)
    check_range(0, count, 0, PAIRS_MAX)
    check_length(state, 32 + 16 * count)
    check_range(1, seen, 0, MAX)
    now = max(now, seen)
    ends, units, live, in_use = read_pairs(state, 33, count, now)
  end
  local status, hold_generation, hold_ends, weight = read_hold(record)
  local is_held = status == OPEN and hold_ends > now and hold_generation == generation
  local reset = ends[live] or now

  local function new_state()
    return pack('<BBI6I8c16', 1, 9, #ends, now, generation) .. pack_pairs(ends, units)
  end

  local remaining = max(limit - in_use, 0)
  if op == CHARGE or op == PEEK then
    local needed = max(cost, 1)
    if op == CHARGE and is_held then
      return TOKEN_IN_USE, 0, remaining, reset, NONE, 0
    end
    if in_use + needed > limit then
      return REFUSED, ends_by(ends, units, in_use + needed - limit) or now, remaining, reset, NONE, 0
    end
    if cost == 0 then
      return ADMITTED, 0, remaining, reset, NONE, 0
    end
    local lease_ends = hold_end(now, lease)
    reset = max(reset, lease_ends)
    if op == PEEK then
      return ADMITTED, 0, limit - in_use - cost, reset, NONE, 0
    end
    generation = generation or new_generation(now, token)
    add_units(ends, units, lease_ends, cost)
    return ADMITTED, 0, limit - in_use - cost, reset, HELD, lease_ends, new_state(), reset,
      pack_hold(OPEN, generation, lease_ends, cost), lease_ends
  elseif op == USAGE then
    return USED, in_use, limit - in_use, reset, NONE, 0
  elseif op ~= RENEW and op ~= RELEASE then
    return NOT_SUPPORTED, 0, remaining, reset, NONE, 0
  elseif not is_held then
    return NOT_HELD, 0, remaining, reset, NONE, 0
  end
  take_units(ends, units, hold_ends, weight)
  if op == RENEW then
    local lease_ends = max(hold_ends, hold_end(now, lease))
    add_units(ends, units, lease_ends, weight)
    reset = ends[#ends]
    return DONE, weight, remaining, reset, HELD, lease_ends, new_state(), reset,
      pack_hold(OPEN, generation, lease_ends, weight), lease_ends
  end
  reset = ends[#ends] or now
  return DONE, weight, max(limit - (in_use - weight), 0), reset, NONE, 0, new_state(), reset, false, now
end
