-- Meter: a plain counter, forgotten when nobody has touched it for long enough. Twin of core's meter.rs.
-- State: value, touched. Numbers: limit, expiry.

local function meter(state, now, op, cost, _, _, mark, at)
  local limit, expiry = unpack_from('<dd', batch, at)
  local value, touched, free = 0, now, now
  if state then
    sized(state, 24)
    local last
    value, last = unpack_from('<I8I8', state, 9)
    within(1, value, 0, MAX)
    within(2, last, 0, MAX)
    touched = max(now, last)
    local over = min(last + expiry, MAX)
    if touched >= over then
      value = 0
    end
    free = value > 0 and over or touched
  end

  local verdict, number, mark_kind, next_value = NOT_SUPPORTED, 0, NONE, nil
  if op == CHARGE or op == PEEK then
    if value + max(cost, 1) > limit then
      verdict, number = REFUSED, free
    else
      verdict = ADMITTED
      if cost > 0 then
        next_value, mark_kind = value + cost, COUNTER
      end
    end
  elseif op == REFUND then
    verdict = NOT_HELD
    if value > 0 and mark == COUNTER then
      local given = min(cost, value)
      verdict, number, next_value = DONE, given, value - given
    end
  end

  if not next_value then
    return verdict, number, max(limit - value, 0), free, NONE, 0
  end
  if next_value > 0 then
    free = min(touched + expiry, MAX)
  else
    free = touched
  end
  local change = pack('<BBI6I8I8', 1, 7, 0, next_value, touched)
  return verdict, number, max(limit - next_value, 0), free, mark_kind, 0, change, free
end
