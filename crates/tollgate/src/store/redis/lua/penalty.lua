-- Penalty: each failure beyond the free ones makes the wait longer, and a success clears them. Twin of core's
-- penalty.rs; prelude.lua has the contract.
--
-- State
--   BBI6  version 1, kind 8, 0
--   I8    failures
--   I8    time until which requests are refused
--
-- Numbers, doubles: free failures, first wait, factor, longest wait, memory, whether a refused charge counts as a
--   failure (0 or 1)
--
-- Example: a second failure at 2500000 with 1 free failure and a first wait of 1000000 writes failures 2, time 3500000.

local function penalty(state, now, op, cost, _, _, _, numbers_at)
  local free, base, factor, longest, memory, count_refused = unpack_from('<dddddd', batch, numbers_at)
  local failures, blocked_until = 0, 0
  if state then
    check_length(state, 24)
    failures, blocked_until = unpack_from('<I8I8', state, 9)
    check_range(1, failures, 0, MAX)
    check_range(2, blocked_until, 0, MAX)
    if now >= min(blocked_until + memory, MAX) then
      failures, blocked_until = 0, 0
    end
  end
  local is_blocked = failures > free and now < blocked_until
  local wants_admission = op == CHARGE or op == PEEK
  local counts_refusal = wants_admission and is_blocked and op == CHARGE and cost > 0 and count_refused == 1

  local verdict, number, change = NOT_SUPPORTED, 0, nil
  if op == FAILURE or counts_refusal then
    failures = min(failures + 1, free + 64)
    local wait = 0
    if failures > free then
      wait = base
      for _ = 1, failures - free - 1 do
        wait = wait * factor
      end
      wait = min(wait, longest)
    end
    blocked_until = max(blocked_until, min(now + wait, MAX))
    is_blocked = failures > free and now < blocked_until
    verdict, number = DONE, failures
    if counts_refusal then
      verdict, number = REFUSED, blocked_until
    end
    change = pack('<BBI6I8I8', 1, 8, 0, failures, blocked_until)
  elseif op == SUCCESS then
    verdict, number, change = DONE, failures, false
    failures, is_blocked = 0, false
  elseif wants_admission and is_blocked then
    verdict, number = REFUSED, blocked_until
  elseif wants_admission then
    verdict = ADMITTED
  end

  local remaining = is_blocked and 0 or max(free + 1 - failures, 1)
  local reset = failures == 0 and now or min(blocked_until + memory, MAX)
  if change == nil then
    return verdict, number, remaining, reset, NONE, 0
  end
  return verdict, number, remaining, reset, NONE, 0, change, reset
end
