-- Meter: a counter that is deleted when it has not been used for `expiry`. Twin of core's meter.rs; prelude.lua has
-- the contract.
--
-- State
--   BBI6  version 1, kind 7, 0
--   I8    value
--   I8    time of the last use
--
-- Numbers, doubles: limit, expiry
--
-- Example: a charge of 1 at 2500000 writes value 1, time 2500000.

local function meter(state, now, op, cost, _, _, mark, numbers_at)
  local limit, expiry = unpack_from('<dd', batch, numbers_at)
  local value, used_at, reset, stored_used_at = 0, now, now, nil
  if state then
    check_length(state, 24)
    value, stored_used_at = unpack_from('<I8I8', state, 9)
    check_range(1, value, 0, MAX)
    check_range(2, stored_used_at, 0, MAX)
    used_at = max(now, stored_used_at)
    local expires = min(stored_used_at + expiry, MAX)
    if used_at >= expires then
      value = 0
    end
    reset = value > 0 and expires or used_at
  end

  local verdict, number, mark_kind, next_value = NOT_SUPPORTED, 0, NONE, nil
  if op == CHARGE or op == PEEK then
    if value + max(cost, 1) > limit then
      verdict, number = REFUSED, reset
    else
      verdict = ADMITTED
      if cost > 0 then
        next_value, mark_kind = value + cost, COUNTER
      end
    end
  elseif op == CREDIT and (cost == 0 or value == 0) then
    verdict = DONE
  elseif op == CREDIT or op == REFUND and value > 0 and mark == COUNTER then
    local given = min(cost, value)
    value = value - given
    if value == 0 then
      reset = used_at
    end
    return DONE, given, limit - value, reset, NONE, 0, pack('<BBI6I8I8', 1, 7, 0, value, stored_used_at)
  elseif op == REFUND then
    verdict = NOT_HELD
  elseif op == RECORD then
    verdict, number = RECORDED, min(cost, MAX - value)
    if number > 0 then
      next_value, mark_kind = value + number, COUNTER
    end
  end

  if not next_value then
    return verdict, number, limit - value, reset, NONE, 0, nil, nil, nil, nil, value >= limit and reset or nil
  end
  if next_value > 0 then
    reset = min(used_at + expiry, MAX)
  else
    reset = used_at
  end
  local change = pack('<BBI6I8I8', 1, 7, 0, next_value, used_at)
  return verdict, number, limit - next_value, reset, mark_kind, 0, change, reset, nil, nil,
    next_value >= limit and reset or nil
end
