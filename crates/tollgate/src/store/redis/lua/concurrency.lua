-- Concurrency: leases that end by themselves, the one that ends first in front. Twin of core's concurrency.rs.
-- State: seen; for each lease until, token, weight. Numbers: limit, lease.
--
-- A lease is 32 bytes, so leases are dropped, taken out and put in by cutting the string. Work grows with the leases
-- held, which the limit bounds.

local function concurrency(state, now, op, cost, token, _, _, at)
  local limit, lease = unpack_from('<dd', batch, at)
  local first, held, own, own_until, own_weight, last = 17, 0, nil, 0, 0, now
  if state then
    headed(state, 16)
    local count, seen = unpack_from('<I6I8', state, 3)
    within(0, count, 0, 65536)
    sized(state, 16 + 32 * count)
    within(1, seen, 0, MAX)
    now = max(now, seen)
    last = now
    local previous = 0
    for place = 17, #state, 32 do
      local till, name, weight = unpack_from('<I8c16I8', state, place)
      local word = (place - 1) / 8
      within(word, till, previous, MAX)
      within(word + 3, weight, 0, 65536)
      previous = till
      if till <= now then
        first = place + 32
      else
        held, last = held + weight, till
        if name == token and not own then
          own, own_until, own_weight = place, till, weight
        end
      end
    end
  end

  -- The state with the lease at `out` taken out and one until `till` put in behind all that end no later.
  local function changed(out, till, name, weight)
    local live = state and state:sub(first) or ''
    if out then
      live = live:sub(1, out - first) .. live:sub(out - first + 33)
    end
    if till then
      local place = #live
      while place > 0 and unpack_from('<I8', live, place - 31) > till do
        place = place - 32
      end
      live = live:sub(1, place) .. pack('<I8c16I8', till, name, weight) .. live:sub(place + 1)
    end
    return pack('<BBI6I8', 1, 5, #live / 32, now) .. live
  end

  local remaining = max(limit - held, 0)
  if op == CHARGE or op == PEEK then
    local needed = max(cost, 1)
    if op == CHARGE and own then
      return TOKEN_IN_USE, 0, remaining, last, NONE, 0
    end
    if held + needed > limit then
      local excess, retry = held + needed - limit, now
      for place = first, state and #state or 0, 32 do
        local till, _, weight = unpack_from('<I8c16I8', state, place)
        if weight >= excess then
          retry = till
          break
        end
        excess = excess - weight
      end
      return REFUSED, retry, remaining, last, NONE, 0
    end
    if cost == 0 then
      return ADMITTED, 0, remaining, last, NONE, 0
    end
    local till = min(now + lease, MAX)
    local reset = max(till, last)
    if op == PEEK then
      return ADMITTED, 0, limit - held - cost, reset, NONE, 0
    end
    return ADMITTED, 0, limit - held - cost, reset, HELD, till, changed(nil, till, token, cost), reset
  elseif op ~= RENEW and op ~= RELEASE then
    return NOT_SUPPORTED, 0, remaining, last, NONE, 0
  elseif not own then
    return NOT_HELD, 0, remaining, last, NONE, 0
  elseif op == RENEW then
    local till = max(own_until, min(now + lease, MAX))
    local reset = max(last, till)
    return DONE, own_weight, remaining, reset, HELD, till, changed(own, till, token, own_weight), reset
  end
  local reset = now
  if #state > own + 31 then
    reset = last
  elseif own > first then
    reset = unpack_from('<I8', state, own - 32)
  end
  return DONE, own_weight, max(limit - (held - own_weight), 0), reset, NONE, 0, changed(own), reset
end
