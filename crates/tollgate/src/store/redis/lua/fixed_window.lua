-- Fixed window: at most `limit` units per aligned window. Twin of core's fixed_window.rs; prelude.lua has the contract.
--
-- State
--   BBI6  version 1, kind 1, 0
--   I8    start of the window
--   I8    length of the window
--   I8    units used
--
-- Numbers, doubles: limit, window
--
-- Example: a charge of 1 at 2500000 under limit 5 and window 1000000 writes start 2000000, length 1000000, used 1.

local function fixed_window(state, now, op, cost, _, extra, mark, numbers_at)
  local limit, window = unpack_from('<dd', batch, numbers_at)
  local booked_start, booked_length, used, reset
  if state then
    if #state ~= 32 then
      check_length(state, 32)
    end
    booked_start, booked_length, used = unpack_from('<I8I8I8', state, 9)
    if booked_start > MAX or booked_length > MAX or used > MAX then
      check_exact(1, booked_start, booked_length, used)
    end
    check_range(2, booked_length, 1, MAX)
    if now < booked_start then
      now = booked_start
    end
    reset = min(booked_start + booked_length, MAX)
  end
  local start = now - now % window
  local window_end = start + window
  if window_end > MAX then
    window_end = MAX
  end
  -- Consumption counts until the end of the window that it was charged in, even if the limit had another window then.
  if not reset or now >= reset then
    used, reset = 0, window_end
  end
  if op == CHARGE or op == PEEK then
    if used + (cost > 0 and cost or 1) > limit then
      return REFUSED, reset, max(limit - used, 0), reset, NONE, 0
    end
    if cost == 0 then
      return ADMITTED, 0, max(limit - used, 0), reset, NONE, 0
    end
    used = used + cost
    return ADMITTED, 0, limit - used, window_end, WINDOW, start,
      pack('<BBI6I8I8I8', 1, 1, 0, start, window, used), window_end
  elseif op == REFUND then
    if state and booked_length ~= window then
      return WINDOW_CHANGED, 0, max(limit - used, 0), reset, NONE, 0
    end
    if used == 0 or mark ~= WINDOW or extra ~= booked_start then
      return NOT_HELD, 0, max(limit - used, 0), reset, NONE, 0
    end
    local refunded = min(cost, used)
    used = used - refunded
    local change = pack('<BBI6I8I8I8', 1, 1, 0, booked_start, booked_length, used)
    return DONE, refunded, max(limit - used, 0), reset, NONE, 0, change
  elseif op == RECORD then
    local amount = min(cost, MAX - used)
    local mark_kind, mark_time, change, expires = NONE, 0, nil, nil
    used = used + amount
    if amount > 0 then
      reset, mark_kind, mark_time, expires = window_end, WINDOW, start, window_end
      change = pack('<BBI6I8I8I8', 1, 1, 0, start, window, used)
    end
    return RECORDED, amount, limit - used, reset, mark_kind, mark_time, change, expires, nil, nil,
      used >= limit and reset or nil
  elseif op == CREDIT then
    local credited = min(cost, used)
    used = used - credited
    return DONE, credited, max(limit - used, 0), reset, NONE, 0,
      credited > 0 and pack('<BBI6I8I8I8', 1, 1, 0, booked_start, booked_length, used) or nil
  end
  return NOT_SUPPORTED, 0, max(limit - used, 0), reset, NONE, 0
end
