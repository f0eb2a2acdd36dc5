-- Concurrency: leases that expire by themselves. Twin of core's concurrency.rs; prelude.lua has the contract.
--
-- State
--   BBI6     version 1, kind 5, number of leases
--   I8       latest time seen
--   I8c16I8  end, token and weight of each lease, in order of the ends
--
-- Numbers, doubles: limit, length of a lease
--
-- Example: a charge of 1 at 2500000 under a lease of 1000000 writes time 2500000 and a lease until 3500000 of weight 1.
--
-- The work grows with the number of leases, which the limit bounds.

local function concurrency(state, now, op, cost, token, _, _, numbers_at)
  local limit, lease = unpack_from('<dd', batch, numbers_at)
  local live_from, in_use, own_pos, own_ends, own_weight, last_ends = 17, 0, nil, 0, 0, now
  if state then
    check_head(state, 16)
    local count, seen = unpack_from('<I6I8', state, 3)
    check_range(0, count, 0, 65536)
    check_length(state, 16 + 32 * count)
    check_range(1, seen, 0, MAX)
    now = max(now, seen)
    last_ends = now
    local previous = 0
    for pos = 17, #state, 32 do
      local ends, owner, weight = unpack_from('<I8c16I8', state, pos)
      local word = (pos - 1) / 8
      check_range(word, ends, previous, MAX)
      check_range(word + 3, weight, 0, 65536)
      previous = ends
      if ends <= now then
        live_from = pos + 32
      else
        in_use, last_ends = in_use + weight, ends
        if owner == token and not own_pos then
          own_pos, own_ends, own_weight = pos, ends, weight
        end
      end
    end
  end

  -- Returns the state without the lease at `removed`, if given, and with a lease until `ends`, if given, in order of
  -- ends.
  local function new_state(removed, ends, owner, weight)
    local live = state and state:sub(live_from) or ''
    if removed then
      live = live:sub(1, removed - live_from) .. live:sub(removed - live_from + 33)
    end
    if ends then
      local pos = #live
      while pos > 0 and unpack_from('<I8', live, pos - 31) > ends do
        pos = pos - 32
      end
      live = live:sub(1, pos) .. pack('<I8c16I8', ends, owner, weight) .. live:sub(pos + 1)
    end
    return pack('<BBI6I8', 1, 5, #live / 32, now) .. live
  end

  local remaining = max(limit - in_use, 0)
  if op == CHARGE or op == PEEK then
    local needed = max(cost, 1)
    if op == CHARGE and own_pos then
      return TOKEN_IN_USE, 0, remaining, last_ends, NONE, 0
    end
    if in_use + needed > limit then
      local excess, retry = in_use + needed - limit, now
      for pos = live_from, state and #state or 0, 32 do
        local ends, _, weight = unpack_from('<I8c16I8', state, pos)
        if weight >= excess then
          retry = ends
          break
        end
        excess = excess - weight
      end
      return REFUSED, retry, remaining, last_ends, NONE, 0
    end
    if cost == 0 then
      return ADMITTED, 0, remaining, last_ends, NONE, 0
    end
    local ends = min(now + lease, MAX)
    local reset = max(ends, last_ends)
    if op == PEEK then
      return ADMITTED, 0, limit - in_use - cost, reset, NONE, 0
    end
    return ADMITTED, 0, limit - in_use - cost, reset, HELD, ends, new_state(nil, ends, token, cost), reset
  elseif op ~= RENEW and op ~= RELEASE then
    return NOT_SUPPORTED, 0, remaining, last_ends, NONE, 0
  elseif not own_pos then
    return NOT_HELD, 0, remaining, last_ends, NONE, 0
  elseif op == RENEW then
    local ends = max(own_ends, min(now + lease, MAX))
    local reset = max(last_ends, ends)
    return DONE, own_weight, remaining, reset, HELD, ends, new_state(own_pos, ends, token, own_weight), reset
  end
  local reset = now
  if #state > own_pos + 31 then
    reset = last_ends
  elseif own_pos > live_from then
    reset = unpack_from('<I8', state, own_pos - 32)
  end
  return DONE, own_weight, max(limit - (in_use - own_weight), 0), reset, NONE, 0, new_state(own_pos), reset
end
