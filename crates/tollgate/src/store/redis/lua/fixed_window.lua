-- Fixed window: at most `limit` units per aligned window. Twin of core's fixed_window.rs.
-- State: start, window, used. Numbers: limit, window.

local function fixed_window(state, now, op, cost, _, extra, mark, at)
  local limit, window = unpack_from('<dd', batch, at)
  local began, used, free
  if state then
    sized(state, 32)
    local length
    began, length, used = unpack_from('<I8I8I8', state, 9)
    within(1, began, 0, MAX)
    within(2, length, 1, MAX)
    within(3, used, 0, MAX)
    now = max(now, began)
    free = min(began + length, MAX)
  end
  local start = now - now % window
  local stop = min(start + window, MAX)
  -- Consumption counts until the window it was booked in is over, also if that one had another length.
  if not free or now >= free then
    used, free = 0, stop
  end
  if op == CHARGE or op == PEEK then
    if used + max(cost, 1) > limit then
      return REFUSED, free, max(limit - used, 0), free, NONE, 0
    end
    if cost == 0 then
      return ADMITTED, 0, max(limit - used, 0), free, NONE, 0
    end
    used = used + cost
    return ADMITTED, 0, limit - used, stop, WINDOW, start, pack('<BBI6I8I8I8', 1, 1, 0, start, window, used), stop
  elseif op == REFUND then
    if used == 0 or mark ~= WINDOW or extra ~= began then
      return NOT_HELD, 0, max(limit - used, 0), free, NONE, 0
    end
    local given = min(cost, used)
    used = used - given
    local change = pack('<BBI6I8I8I8', 1, 1, 0, start, window, used)
    return DONE, given, max(limit - used, 0), stop, NONE, 0, change, stop
  end
  return NOT_SUPPORTED, 0, max(limit - used, 0), free, NONE, 0
end
