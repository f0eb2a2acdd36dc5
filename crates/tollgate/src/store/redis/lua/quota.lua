-- Quota: an allowance per calendar period, or per period that starts with the first use, with reservations. Twin of
-- core's quota.rs; prelude.lua has the contract.
--
-- State
--   BBI6     version 1, kind 6, number of reservations
--   I8       start of the period
--   I8       end of the period
--   I8       latest time seen
--   I8       units used
--   I8c16I8  end, token and cost of each reservation, in order of the ends
--
-- Numbers, doubles: allowance, grace, length of a rolling period (0 for calendar periods), the starts of three
--   consecutive calendar periods, the end of the third
--
-- Example: a charge of 1 at 2500000 under a rolling period of 1000000 writes start 2500000, end 3500000, time 2500000,
-- used 1.
--
-- The caller computes the calendar periods around its own clock. Outside of them the verdict is RECOMPUTE and nothing
-- is written, so one fast clock cannot start a new month for all callers.

local function quota(state, now, op, cost, token, extra, mark, numbers_at)
  local allowance, grace, rolling, s1, s2, s3, s4 = unpack_from('<ddddddd', batch, numbers_at)
  local ceiling = allowance + grace
  local stored_start, stored_end, seen, used = nil, nil, nil, 0
  if state then
    local count
    check_head(state, 40)
    count, stored_start, stored_end, seen, used = unpack_from('<I6I8I8I8I8', state, 3)
    check_range(0, count, 0, 4096)
    check_length(state, 40 + 32 * count)
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
    elseif op ~= REFUND then
      return RECOMPUTE, now, 0, now, NONE, 0
    end
    same_period = state and now < stored_end
    reset = same_period and stored_end or period_end
  end
  if not same_period then
    used = 0
  end

  local live_from, reserved, live_count, own_pos, own_cost = 41, 0, 0, nil, 0
  if state then
    local previous, all = 0, 0
    for pos = 41, #state, 32 do
      local ends, owner, amount = unpack_from('<I8c16I8', state, pos)
      local word = (pos - 1) / 8
      check_range(word, ends, previous, MAX)
      check_range(word + 3, amount, 0, MAX - all)
      previous, all = ends, all + amount
      if ends <= now or not same_period then
        live_from = pos + 32
      else
        reserved, live_count = reserved + amount, live_count + 1
        if owner == token and not own_pos then
          own_pos, own_cost = pos, amount
        end
      end
    end
  end

  if op == REFUND then
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
      local pos = 41
      while pos < #state and unpack_from('<I8', state, pos) <= seen do
        pos = pos + 32
      end
      local live = state:sub(pos)
      change = pack('<BBI6I8I8I8I8', 1, 6, #live / 32, stored_start, stored_end, seen, used) .. live
    end
    if not period_end then
      -- The periods of the receipt do not cover this time.
      return verdict, refunded, 0, now, NONE, 0, change
    end
    return verdict, refunded, max(allowance - (used + reserved), 0), reset, NONE, 0, change
  end

  -- Returns the state with `units` used, without the reservation at `removed`, if given, and with one until `ends`, if
  -- given, in order of ends.
  local function new_state(units, removed, ends, amount)
    local live = state and state:sub(live_from) or ''
    if removed then
      live = live:sub(1, removed - live_from) .. live:sub(removed - live_from + 33)
    end
    if ends then
      local pos = #live
      while pos > 0 and unpack_from('<I8', live, pos - 31) > ends do
        pos = pos - 32
      end
      live = live:sub(1, pos) .. pack('<I8c16I8', ends, token, amount) .. live:sub(pos + 1)
    end
    return pack('<BBI6I8I8I8I8', 1, 6, #live / 32, period_start, period_end, now, units) .. live
  end

  local remaining = max(allowance - (used + reserved), 0)
  if op == CHARGE or op == PEEK or op == RESERVE then
    local needed = max(cost, 1)
    if op == RESERVE and own_pos then
      return TOKEN_IN_USE, 0, remaining, reset, NONE, 0
    end
    if used + reserved + needed > ceiling then
      -- Retry when enough reservations have ended, or at the end of the period. Subtracting keeps every number exact.
      local room, left = ceiling - used - needed, reserved
      for pos = live_from, state and #state or 0, 32 do
        local ends, _, amount = unpack_from('<I8c16I8', state, pos)
        left = left - amount
        if left <= room then
          return REFUSED, min(ends, reset), remaining, reset, NONE, 0
        end
      end
      return REFUSED, reset, remaining, reset, NONE, 0
    end
    if op == RESERVE and live_count >= 4096 then
      return TOO_MANY, 0, remaining, reset, NONE, 0
    end
    if cost == 0 then
      return ADMITTED, 0, remaining, reset, NONE, 0
    end
    remaining = max(allowance - (used + reserved + cost), 0)
    if op == RESERVE then
      local ends = min(now + extra, MAX, period_end)
      return ADMITTED, 0, remaining, period_end, HELD, ends, new_state(used, nil, ends, cost), period_end
    end
    return ADMITTED, 0, remaining, period_end, WINDOW, period_start, new_state(used + cost), period_end
  elseif op ~= SETTLE and op ~= CANCEL then
    return NOT_SUPPORTED, 0, remaining, reset, NONE, 0
  elseif not own_pos then
    return NOT_HELD, 0, remaining, reset, NONE, 0
  elseif op == CANCEL then
    remaining = max(allowance - (used + reserved - own_cost), 0)
    return DONE, own_cost, remaining, period_end, NONE, 0, new_state(used, own_pos), period_end
  elseif cost > MAX - used then
    return OVERFLOW, 0, remaining, reset, NONE, 0
  end
  remaining = max(allowance - (used + cost + (reserved - own_cost)), 0)
  return DONE, cost, remaining, period_end, WINDOW, period_start, new_state(used + cost, own_pos), period_end
end
