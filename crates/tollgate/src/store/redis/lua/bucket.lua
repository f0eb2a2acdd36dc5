-- Token bucket, leaky meter and leaky shaper: a debt that drains. Twin of core's bucket.rs; prelude.lua has the
-- contract.
--
-- State
--   BBI6  version 1, kind 4, 0
--   I8    debt, in 1 / scale units
--   I8    time of the debt
--   I8    scale
--
-- Numbers, doubles: capacity, scale, drain (1 / scale units per tick), tick, kind (0 tokens, 1 meter, 2 queue)
--
-- Example: a charge of 1 at 2500000 under 2 units per second (scale 500000, drain 1, tick 1) writes debt 500000,
-- time 2500000, scale 500000.

-- Returns debt * to / from, rounded up, or down if `is_down`, at most 2^53 - 1. The product has up to 106 bits, so the
-- quotient is computed bit by bit. Runs only at the first check after the rule's rate has changed, and for receipts
-- from before.
local function convert(debt, from, to, is_down)
  local whole, rest = floor(debt / from), debt % from
  local quotient, left = 0, 0
  local bit = 4503599627370496
  while bit >= 1 do
    quotient = quotient + quotient
    if left >= from - left then
      quotient, left = quotient + 1, left - (from - left)
    else
      left = left + left
    end
    if to >= bit then
      to = to - bit
      quotient = quotient + whole
      if left >= from - rest then
        quotient, left = quotient + 1, left - (from - rest)
      else
        left = left + rest
      end
    end
    if quotient > MAX then
      return MAX
    end
    bit = bit / 2
  end
  return min(left > 0 and not is_down and quotient + 1 or quotient, MAX)
end

-- Longest time that a recorded debt takes to drain, unless two fill times are longer: 31 days.
local OVERDRAFT_MAX = 2678400000000

local function bucket(state, now, op, cost, token, extra, mark, numbers_at)
  local capacity, scale, drain, tick, bucket_kind = unpack_from('<ddddd', batch, numbers_at)
  local ceiling = capacity * scale
  local time = now - now % tick
  local debt = 0
  if state then
    if #state ~= 32 then
      check_length(state, 32)
    end
    local last, from
    debt, last, from = unpack_from('<I8I8I8', state, 9)
    if debt > MAX or last > MAX or from > MAX then
      check_exact(1, debt, last, from)
    end
    if from ~= scale then
      check_range(3, from, 1, MAX)
      debt = convert(debt, from, scale)
    end
    if tick > 1 then
      last = min(ceil_div(last, tick) * tick, MAX)
    end
    if debt > MAX - ceiling then
      debt = MAX - ceiling
    end
    if time > last then
      debt = debt - floor((time - last) / tick) * drain
      if debt < 0 then
        debt = 0
      end
    else
      time = last
    end
  end

  local verdict, number, mark_kind, mark_time, next_debt, free_at = NOT_SUPPORTED, 0, NONE, 0, nil, nil
  if op == CHARGE or op == PEEK then
    local needed = debt + (cost > 0 and cost or 1) * scale
    if needed > ceiling then
      local wait = min(ceil_div(needed - ceiling, drain) * tick, MAX)
      verdict, number = REFUSED, min(time + wait, MAX)
    else
      verdict = ADMITTED
      if bucket_kind == 2 then
        number = min(ceil_div(debt, drain) * tick, MAX)
      end
      if cost > 0 then
        next_debt = needed
        if bucket_kind ~= 2 then
          mark_kind, mark_time = AT, time
        end
      end
    end
  elseif op == RECORD then
    -- Units are cut before they are multiplied.
    local debt_max = min(max(floor(OVERDRAFT_MAX / tick) * drain, 2 * ceiling), MAX - ceiling)
    verdict, number = RECORDED, min(cost, floor(max(debt_max - debt, 0) / scale))
    local owed = debt + number * scale
    if bucket_kind == 2 then
      free_at = min(now + ceil_div(debt, drain) * tick, MAX)
    elseif owed + scale > ceiling then
      free_at = min(time + ceil_div(owed + scale - ceiling, drain) * tick, MAX)
    end
    if number > 0 then
      next_debt = owed
      if bucket_kind ~= 2 then
        mark_kind, mark_time = AT, time
      end
    end
  elseif op == CREDIT and bucket_kind ~= 2 then
    -- Cut before it is multiplied, too.
    local credited = min(min(cost, ceil_div(debt, scale)) * scale, debt)
    debt, verdict, number = debt - credited, DONE, floor(credited / scale)
    if credited > 0 then
      local reset = min(time + ceil_div(debt, drain) * tick, MAX)
      return DONE, number, floor((ceiling - debt) / scale), reset, NONE, 0,
        pack('<BBI6I8I8I8', 1, 4, 0, debt, time, scale), debt > 0 and reset or nil
    end
  elseif op == REFUND and bucket_kind ~= 2 then
    verdict = NOT_HELD
    if mark == AT and state then
      local stored_debt, stored_time, stored_scale = unpack_from('<I8I8I8', state, 9)
      -- No charge and no record is larger.
      local charged = min(unpack_from('<d', token), floor((MAX - ceiling) / scale))
      local elapsed = floor(max(time - (extra - extra % tick), 0) / tick)
      local left = charged * scale
      if elapsed < ceil_div(left, drain) then
        left = min(left - elapsed * drain, min(cost, charged) * scale)
      else
        left = 0
      end
      local last = min(ceil_div(stored_time, tick) * tick, MAX)
      local since = floor(max(time - last, 0) / tick)
      local drained = min(since * drain, MAX)
      if stored_scale ~= scale then
        left, drained = convert(left, scale, stored_scale, true), convert(drained, scale, stored_scale)
      end
      local refunded = min(left, max(stored_debt - drained, 0))
      if refunded > 0 then
        local rest = stored_debt - refunded
        local change = pack('<BBI6I8I8I8', 1, 4, 0, rest, stored_time, stored_scale)
        -- The answer has the numbers of the debt that is left, in this limit's scale.
        debt = stored_scale == scale and rest or convert(rest, stored_scale, scale)
        debt = max(min(debt, MAX - ceiling) - since * drain, 0)
        local remaining = debt < ceiling and floor((ceiling - debt) / scale) or 0
        return DONE, floor(refunded / stored_scale), remaining, min(time + ceil_div(debt, drain) * tick, MAX), NONE, 0,
          change
      end
    end
  end

  local owed = next_debt or debt
  -- Rounded down, so an overdraft is rounded up.
  local remaining = floor((ceiling - owed) / scale)
  local reset = time + (drain == 1 and owed or ceil_div(owed, drain)) * tick
  if reset > MAX then
    reset = MAX
  end
  if not next_debt then
    return verdict, number, remaining, reset, NONE, 0, nil, nil, nil, nil, free_at
  end
  local change = pack('<BBI6I8I8I8', 1, 4, 0, next_debt, time, scale)
  return verdict, number, remaining, reset, mark_kind, mark_time, change, reset, nil, nil, free_at
end
