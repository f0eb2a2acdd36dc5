-- Penalty: every failure past the free ones makes the wait longer; a success clears it. Twin of core's penalty.rs.
-- State: failures, until. Numbers: free, base, factor, longest, memory, whether asking while refused counts (0 or 1).

local function penalty(state, now, op, cost, _, _, _, at)
  local free, base, factor, longest, memory, count_refused = unpack_from('<dddddd', batch, at)
  local failures, till = 0, 0
  if state then
    sized(state, 24)
    failures, till = unpack_from('<I8I8', state, 9)
    within(1, failures, 0, MAX)
    within(2, till, 0, MAX)
    if now >= min(till + memory, MAX) then
      failures, till = 0, 0
    end
  end
  local waits = failures > free and now < till
  local asks = op == CHARGE or op == PEEK
  local counts = asks and waits and op == CHARGE and cost > 0 and count_refused == 1

  local verdict, number, change = NOT_SUPPORTED, 0, nil
  if op == FAILURE or counts then
    failures = min(failures + 1, free + 64)
    local wait = 0
    if failures > free then
      wait = base
      for _ = 1, failures - free - 1 do
        wait = wait * factor
      end
      wait = min(wait, longest)
    end
    till = max(till, min(now + wait, MAX))
    waits = failures > free and now < till
    verdict, number = DONE, failures
    if counts then
      verdict, number = REFUSED, till
    end
    change = pack('<BBI6I8I8', 1, 8, 0, failures, till)
  elseif op == SUCCESS then
    verdict, number, change = DONE, failures, false
    failures, waits = 0, false
  elseif asks and waits then
    verdict, number = REFUSED, till
  elseif asks then
    verdict = ADMITTED
  end

  local remaining = waits and 0 or max(free + 1 - failures, 1)
  local reset = failures == 0 and now or min(till + memory, MAX)
  if change == nil then
    return verdict, number, remaining, reset, NONE, 0
  end
  return verdict, number, remaining, reset, NONE, 0, change, reset
end
