-- Quota: an allowance per calendar period, or per period that starts with the first use, with reservations. Twin of
-- core's quota.rs.
-- State: start, end, seen, used; for each reservation until, token, cost, the one that ends first in front. Numbers:
-- allowance, grace, length of a rolling period (0 if by the calendar), the starts of three periods and the last one's end.
--
-- The caller computed the periods around its own clock; outside of them the answer is "recompute" and nothing is
-- written, so that no fast clock rolls a month for everybody.

local function quota(state, now, op, cost, token, extra, mark, at)
  local allowance, grace, rolling, s1, s2, s3, s4 = unpack_from('<ddddddd', batch, at)
  local ceiling = allowance + grace
  local began, ended, used = nil, nil, 0
  if state then
    local seen, count
    headed(state, 40)
    count, began, ended, seen, used = unpack_from('<I6I8I8I8I8', state, 3)
    within(0, count, 0, 4096)
    sized(state, 40 + 32 * count)
    within(1, began, 0, MAX)
    within(2, ended, began, MAX)
    within(3, seen, 0, MAX)
    within(4, used, 0, MAX)
    now = max(now, seen)
  end

  local start, stop, free
  local carried = false
  if rolling > 0 then
    if state and now < min(began + rolling, MAX) then
      start, stop, carried = began, min(began + rolling, MAX), true
      free = stop
    else
      start, stop, free = now, min(now + rolling, MAX), now
    end
  else
    if s1 <= now and now < s2 then
      start, stop = s1, s2
    elseif s2 <= now and now < s3 then
      start, stop = s2, s3
    elseif s3 <= now and now < s4 then
      start, stop = s3, s4
    else
      return RECOMPUTE, now, 0, now, NONE, 0
    end
    carried = state and now < ended
    free = carried and ended or stop
  end
  if not carried then
    used = 0
  end

  local first, held, live, own, own_cost = 41, 0, 0, nil, 0
  if state then
    local previous, all = 0, 0
    for place = 41, #state, 32 do
      local till, name, amount = unpack_from('<I8c16I8', state, place)
      local word = (place - 1) / 8
      within(word, till, previous, MAX)
      within(word + 3, amount, 0, MAX - all)
      previous, all = till, all + amount
      if till <= now or not carried then
        first = place + 32
      else
        held, live = held + amount, live + 1
        if name == token and not own then
          own, own_cost = place, amount
        end
      end
    end
  end

  -- The state with `used` units, the reservation at `out` taken out and one until `till` put in.
  local function changed(units, out, till, amount)
    local kept = state and state:sub(first) or ''
    if out then
      kept = kept:sub(1, out - first) .. kept:sub(out - first + 33)
    end
    if till then
      local place = #kept
      while place > 0 and unpack_from('<I8', kept, place - 31) > till do
        place = place - 32
      end
      kept = kept:sub(1, place) .. pack('<I8c16I8', till, token, amount) .. kept:sub(place + 1)
    end
    return pack('<BBI6I8I8I8I8', 1, 6, #kept / 32, start, stop, now, units) .. kept
  end

  local remaining = max(allowance - (used + held), 0)
  if op == CHARGE or op == PEEK or op == RESERVE then
    local needed = max(cost, 1)
    if op == RESERVE and own then
      return TOKEN_IN_USE, 0, remaining, free, NONE, 0
    end
    if used + held + needed > ceiling then
      -- When enough reservations will have ended, or else the period has. Sums of what is left, so that none is inexact.
      local room, left = ceiling - used - needed, held
      for place = first, state and #state or 0, 32 do
        local till, _, amount = unpack_from('<I8c16I8', state, place)
        left = left - amount
        if left <= room then
          return REFUSED, min(till, free), remaining, free, NONE, 0
        end
      end
      return REFUSED, free, remaining, free, NONE, 0
    end
    if op == RESERVE and live >= 4096 then
      return TOO_MANY, 0, remaining, free, NONE, 0
    end
    if cost == 0 then
      return ADMITTED, 0, remaining, free, NONE, 0
    end
    remaining = max(allowance - (used + held + cost), 0)
    if op == RESERVE then
      local till = min(now + extra, MAX, stop)
      return ADMITTED, 0, remaining, stop, HELD, till, changed(used, nil, till, cost), stop
    end
    return ADMITTED, 0, remaining, stop, WINDOW, start, changed(used + cost), stop
  elseif op == REFUND then
    if used == 0 or mark ~= WINDOW or extra ~= began then
      return NOT_HELD, 0, remaining, free, NONE, 0
    end
    local given = min(cost, used)
    used = used - given
    return DONE, given, max(allowance - (used + held), 0), stop, NONE, 0, changed(used), stop
  elseif op ~= SETTLE and op ~= CANCEL then
    return NOT_SUPPORTED, 0, remaining, free, NONE, 0
  elseif not own then
    return NOT_HELD, 0, remaining, free, NONE, 0
  elseif op == CANCEL then
    remaining = max(allowance - (used + held - own_cost), 0)
    return DONE, own_cost, remaining, stop, NONE, 0, changed(used, own), stop
  elseif cost > MAX - used then
    return OVERFLOW, 0, remaining, free, NONE, 0
  end
  remaining = max(allowance - (used + cost + (held - own_cost)), 0)
  return DONE, cost, remaining, stop, WINDOW, start, changed(used + cost, own), stop
end
