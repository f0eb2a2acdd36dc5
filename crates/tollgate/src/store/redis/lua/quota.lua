-- Quota: an allowance per calendar period, or per period that starts with the first use, with reservations. Twin of
-- core's quota.rs; prelude.lua has the contract, holds.lua the record of a reservation and the sums.
--
-- State
--   BBI6  version 1, kind 10, number of pairs
--   I8    start of the period
--   I8    end of the period
--   I8    latest time seen
--   I8    units used
--   c16   generation: see holds.lua; zeros before the first reservation
--   I8I8  end and units of each pair, in order of the ends
--
-- Numbers, doubles: allowance, grace, length of a rolling period (0 for calendar periods), the starts of three
--   consecutive calendar periods, the end of the third
--
-- Example: a charge of 1 at 2500000 under a rolling period of 1000000 writes start 2500000, end 3500000, time 2500000,
-- used 1.
--
-- The caller computes the calendar periods around its own clock. Outside of them the verdict is RECOMPUTE and nothing
-- is written, so one fast clock cannot start a new month for all callers.

local NO_GENERATION = ('\0'):rep(16)
-- How long a reservation is remembered after its end, for a late settlement.
local REMEMBERED = 3600000000

-- Returns when enough of the `reserved` units have ended for `needed` units to fit: at most `unused` may be reserved
-- then. At the latest, that is the end of the period. Subtracting keeps every number exact.
local function fits_at(needed, unused, ends, units, reserved, period_end)
  local room = unused - needed
  return min(room >= 0 and ends_by(ends, units, reserved - room) or period_end, period_end)
end

local function quota(state, now, op, cost, token, extra, mark, numbers_at, record)
  local allowance, grace, rolling, s1, s2, s3, s4 = unpack_from('<ddddddd', batch, numbers_at)
  local ceiling = allowance + grace
  local stored_start, stored_end, seen, used, generation, count = nil, nil, nil, 0, NO_GENERATION, 0
  if state then
    check_head(state, 56)
    count, stored_start, stored_end, seen, used, generation = unpack_from('<I6I8I8I8I8c16', state, 3)
    check_range(0, count, 0, PAIRS_MAX)
    check_length(state, 56 + 16 * count)
    check_range(1, stored_start, 0, MAX)
    check_range(2, stored_end, stored_start, MAX)
    check_range(3, seen, 0, MAX)
    check_range(4, used, 0, MAX)
    now = max(now, seen)
  end

  local period_start, period_end, reset
  local same_period = false
  if rolling > 0 then
    if state and now < min(stored_start + rolling, MAX) then
      period_start, period_end, same_period = stored_start, min(stored_start + rolling, MAX), true
      reset = period_end
    else
      period_start, period_end, reset = now, min(now + rolling, MAX), now
    end
  else
    if s1 <= now and now < s2 then
      period_start, period_end = s1, s2
    elseif s2 <= now and now < s3 then
      period_start, period_end = s2, s3
    elseif s3 <= now and now < s4 then
      period_start, period_end = s3, s4
    elseif op ~= REFUND or mark == HELD then
      return RECOMPUTE, now, 0, now, NONE, 0
    end
    same_period = state and now < stored_end
    reset = same_period and stored_end or period_end
  end
  local ends, units, reserved = {}, {}, 0
  if count > 0 then
    local _
    ends, units, _, reserved = read_pairs(state, 57, count, now)
  end
  if not same_period then
    used, generation, ends, units, reserved = 0, NO_GENERATION, {}, {}, 0
  end
  local status, hold_generation, hold_ends, held = read_hold(record)
  local is_held = status == OPEN and hold_ends > now and hold_generation == generation

  if op == REFUND and mark ~= HELD then
    local period_of_charge_end
    if state and mark == WINDOW and extra == stored_start then
      if rolling > 0 then
        period_of_charge_end = min(extra + rolling, MAX)
      else
        period_of_charge_end = extra == s1 and s2 or extra == s2 and s3 or extra == s3 and s4 or nil
      end
    end
    local verdict, refunded, change = NOT_HELD, 0, nil
    if period_of_charge_end and period_of_charge_end ~= stored_end then
      verdict = WINDOW_CHANGED
    elseif period_of_charge_end and used > 0 and same_period then
      verdict, refunded = DONE, min(cost, used)
      used = used - refunded
      change = state:sub(1, 32) .. pack('<I8', used) .. state:sub(41)
    end
    if not period_end then
      -- The periods of the receipt do not cover this time.
      return verdict, refunded, 0, now, NONE, 0, change
    end
    return verdict, refunded, max(allowance - (used + reserved), 0), reset, NONE, 0, change
  end

  local function new_state()
    return pack('<BBI6I8I8I8I8c16', 1, 10, #ends, period_start, period_end, now, used, generation) .. pack_pairs(ends, units)
  end

  local remaining = max(allowance - (used + reserved), 0)
  if op == CHARGE or op == PEEK or op == RESERVE or op == EXTEND then
    local needed = max(cost, 1)
    if op == RESERVE and is_held then
      return TOKEN_IN_USE, 0, remaining, reset, NONE, 0
    elseif op == EXTEND and not is_held then
      return NOT_HELD, 0, remaining, reset, NONE, 0
    end
    if used + reserved + needed > ceiling then
      return REFUSED, fits_at(needed, ceiling - used, ends, units, reserved, reset), remaining, reset, NONE, 0
    end
    if cost == 0 then
      return ADMITTED, 0, remaining, reset, NONE, 0
    end
    remaining = max(allowance - (used + reserved + cost), 0)
    if op == RESERVE then
      hold_ends = min(hold_end(now, extra), period_end)
      if generation == NO_GENERATION then
        generation = new_generation(now, token)
      end
      if hold_ends > now then
        add_units(ends, units, hold_ends, cost)
      end
      return ADMITTED, 0, remaining, period_end, HELD, hold_ends, new_state(), period_end,
        pack_hold(OPEN, generation, hold_ends, cost), min(hold_ends + REMEMBERED, MAX)
    end
    if op == EXTEND then
      local extended = max(min(hold_end(now, extra), period_end), hold_ends)
      add_units(ends, units, extended, take_units(ends, units, hold_ends, held) + cost)
      return ADMITTED, 0, remaining, period_end, HELD, extended, new_state(), period_end,
        pack_hold(OPEN, generation, extended, min(held + cost, MAX)), min(extended + REMEMBERED, MAX)
    end
    used = used + cost
    return ADMITTED, 0, remaining, period_end, WINDOW, period_start, new_state(), period_end
  elseif op == RECORD then
    if mark == WINDOW and extra ~= period_start then
      -- For another period. A rolling period that has not begun may begin in the past.
      if rolling == 0 or same_period or extra > now or now >= min(extra + rolling, MAX) then
        return WINDOW_CHANGED, 0, remaining, reset, NONE, 0
      end
      period_start, period_end = extra, min(extra + rolling, MAX)
    end
    -- Used and reserved units are capped together.
    local amount = min(cost, max(MAX - used - reserved, 0))
    local mark_kind, mark_time, change, expires, free_at = NONE, 0, nil, nil, nil
    used = used + amount
    if amount > 0 then
      reset, mark_kind, mark_time, change, expires = period_end, WINDOW, period_start, new_state(), period_end
    end
    if used + reserved + 1 > ceiling then
      free_at = fits_at(1, ceiling - used, ends, units, reserved, reset)
    end
    return RECORDED, amount, max(allowance - used - reserved, -MAX), reset, mark_kind, mark_time, change, expires, nil, nil,
      free_at
  elseif op == USAGE then
    return USED, reserved, max(allowance - (used + reserved), -MAX), reset, NONE, 0
  elseif op == CREDIT then
    local credited = min(cost, used)
    used = used - credited
    return DONE, credited, max(allowance - (used + reserved), 0), reset, NONE, 0,
      credited > 0 and state:sub(1, 32) .. pack('<I8', used) .. state:sub(41) or nil
  elseif op == REFUND then
    -- Gives back what an extension added. The reservation keeps its end.
    if not is_held or held == 0 then
      return NOT_HELD, 0, remaining, reset, NONE, 0
    end
    local given = min(cost, held)
    remaining = max(allowance - used - (reserved - take_units(ends, units, hold_ends, given)), 0)
    return DONE, given, remaining, period_end, NONE, 0, new_state(), period_end,
      pack_hold(OPEN, generation, hold_ends, held - given), min(hold_ends + REMEMBERED, MAX)
  elseif op ~= SETTLE and op ~= CANCEL then
    return NOT_SUPPORTED, 0, remaining, reset, NONE, 0
  elseif op == CANCEL then
    if not is_held then
      return NOT_HELD, 0, remaining, reset, NONE, 0
    end
    take_units(ends, units, hold_ends, held)
    remaining = max(allowance - used - (reserved - held), 0)
    return DONE, held, remaining, period_end, NONE, 0, new_state(), period_end,
      pack_hold(CANCELLED, generation, hold_ends, held), min(hold_ends + REMEMBERED, MAX)
  elseif not status or now >= min(hold_ends + REMEMBERED, MAX) then
    return NOT_HELD, 0, remaining, reset, NONE, 0
  elseif status == SETTLED or status == SETTLED_LATE then
    return status == SETTLED and DONE or BOOKED_LATE, held, remaining, reset, NONE, 0
  end
  local is_late = hold_ends <= now
  if status == CANCELLED or not is_late and not is_held then
    return NOT_HELD, 0, remaining, reset, NONE, 0
  elseif cost > MAX - used - (is_late and reserved or reserved - held) then
    return OVERFLOW, 0, remaining, reset, NONE, 0
  end
  used = used + cost
  if not is_late then
    take_units(ends, units, hold_ends, held)
    reserved = reserved - held
  end
  remaining = max(allowance - used - reserved, 0)
  return is_late and BOOKED_LATE or DONE, cost, remaining, period_end, WINDOW, period_start, new_state(), period_end,
    pack_hold(is_late and SETTLED_LATE or SETTLED, hold_generation, hold_ends, cost), min(hold_ends + REMEMBERED, MAX)
end
