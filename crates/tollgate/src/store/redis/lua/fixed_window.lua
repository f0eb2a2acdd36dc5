-- Fixed window: at most `limit` units per aligned window. Twin of core's fixed_window.rs.
-- State: start, window, used. Numbers: limit, window.

local function fixed_window(state, now, op, cost, _, extra, mark, at)
  local limit, window = unpack_from('<dd', batch, at)
  local began, used, free
  if state then
    if #state ~= 32 then
      sized(state, 32)
    end
    local length
    began, length, used = unpack_from('<I8I8I8', state, 9)
    if began > MAX or length > MAX or used > MAX then
      exact(1, began, length, used)
    end
    within(2, length, 1, MAX)
    if now < began then
      now = began
    end
    free = min(began + length, MAX)
  end
  local start = now - now % window
  local stop = start + window
  if stop > MAX then
    stop = MAX
  end
  -- Consumption counts until the window it was booked in is over, also if that one had another length.
  if not free or now >= free then
    used, free = 0, stop
  end
  if op == CHARGE or op == PEEK then
    if used + (cost > 0 and cost or 1) > limit then
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
