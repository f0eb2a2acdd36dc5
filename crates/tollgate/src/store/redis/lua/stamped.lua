-- State of recorded rules: a quota or a meter under a stamp. Twin of core's stamped.rs; prelude.lua has the contract of a
-- twin. Operations on state without a stamp, or with that of another node, are UNVERIFIED and write nothing.
--
-- State
--   BBI6  version 1, kind 13, 0
--   I8    node that wrote it
--   I8    epoch
--   I8    revision
--   I8    corrections and grants + 2^52
--   I8    number of the last of them
--   I8    adjustments
--   then the state of the quota or meter, or nothing
--
-- Numbers, doubles: number of this node (0 if unknown), kind of the account, then the numbers of that twin
--
-- Tokens, doubles
--   RESTORE  start and end of the period, units held, extra, its number, epoch, 1 if the ledger answered. The cost is the
--            units used, `extra` the end of the last hold.
--   EXTRA    extra, start of the period. The cost is its number.
--   ADJUST   1 to subtract the cost or 0 to add it, epoch, adjustments, start of the period
--
-- Example: a charge of 1 on a key without state returns UNVERIFIED. After RESTORE with node 5, epoch 9 and 3 units used, it
-- returns ADMITTED and writes node 5, epoch 9, revision 1, and a quota with 4 units used.

local EXTRA_ZERO = 4503599627370496
local REVISION_MAX = 4294967295
local NO_HOLDS = ('\0'):rep(16)

-- What the last answer describes: epoch, revision, adjustments, extra in force. The driver adds them to the reply.
local stamp_epoch, stamp_revision, stamp_adjusted, stamp_extra = 0, 0, 0, 0

-- Calls a twin whose first number, the allowance, is changed by corrections and grants.
local function with_extra(kind, more, state, now, op, cost, token, extra, mark, numbers_at, record)
  local whole, twin = batch, twins[kind]
  local allowance, grace = unpack_from('<dd', whole, numbers_at)
  allowance = min(max(allowance + more, 0), kind == QUOTA and MAX - grace or MAX)
  batch = pack('<d', allowance) .. whole:sub(numbers_at + 8, numbers_at + 55)
  local results = { pcall(twin, state, now, op, cost, token, extra, mark, 1, record) }
  batch = whole
  if not results[1] then
    error(results[2], 0)
  end
  return unpack(results, 2, 12)
end

-- Returns the state that the ledger and what the gate has of the same period make, when it may be deleted, and the units
-- that the gate counted before the rule was recorded.
local function restored(kind, found, is_raw, now, used, held_until, token, numbers_at)
  local start, ends, held, _, _, _, known = unpack_from('<ddddddd', token)
  local opening = 0
  if kind == METER then
    local _, expiry = unpack_from('<dd', batch, numbers_at)
    if found then
      local value, touched = unpack_from('<I8I8', found, 9)
      opening = is_raw and max(value - used, 0) or 0
      used, now = max(used, value), max(now, touched)
    end
    return pack('<BBI6I8I8', 1, 7, 0, used, now), min(now + expiry, MAX), opening
  end
  local _, _, rolling = unpack_from('<ddd', batch, numbers_at)
  local generation, pair_ends, pair_units = NO_HOLDS, {}, {}
  if found then
    local count, seen, found_used
    count, start, ends, seen, found_used, generation = unpack_from('<I6I8I8I8I8c16', found, 3)
    opening = is_raw and max(found_used - used, 0) or 0
    used, now = max(used, found_used), max(now, seen)
    if known == 0 and count > 0 then
      local _, sum
      pair_ends, pair_units, _, sum = read_pairs(found, 57, count, now)
      used = min(used, MAX - sum)
    end
  end
  if ends == 0 then
    return '', min(now + rolling, MAX), 0
  end
  held = min(held, MAX - used)
  if (known == 1 or not found) and held > 0 and held_until > now then
    pair_ends, pair_units = { min(held_until, ends) }, { held }
  end
  local state = pack('<BBI6I8I8I8I8c16', 1, 10, #pair_ends, start, ends, now, used, generation)
  return state .. pack_pairs(pair_ends, pair_units), rolling > 0 and min(start + rolling, MAX) or ends, opening
end

-- Returns the account with `cost` units more or less, and by how many it changed.
local function adjusted_account(kind, account, subtract, cost)
  local used = unpack_from('<I8', account, kind == METER and 9 or 33)
  local room, next_used = MAX, nil
  if kind == QUOTA then
    local count, sum = unpack_from('<I6', account, 3), 0
    for pos = 57, 41 + 16 * count, 16 do
      sum = sum + unpack_from('<I8', account, pos + 8)
    end
    room = MAX - sum
  end
  next_used = min(subtract == 1 and max(used - cost, 0) or used + cost, room)
  local at = kind == METER and 9 or 33
  return account:sub(1, at - 1) .. pack('<I8', next_used) .. account:sub(at + 8), math.abs(next_used - used)
end

-- Returns the bytes of a stamp.
local function pack_stamp(node, epoch, revision, extra, extra_no, adjusted)
  return pack('<BBI6I8I8I8I8I8I8', 1, STAMPED, 0, node, epoch, revision, extra + EXTRA_ZERO, extra_no, adjusted)
end

local function stamped(state, now, op, cost, token, extra_arg, mark, numbers_at, record)
  local node, kind = unpack_from('<dd', batch, numbers_at)
  numbers_at = numbers_at + 16
  stamp_epoch, stamp_revision, stamp_adjusted, stamp_extra = 0, 0, 0, 0

  local account, is_raw, is_current, is_stamped = nil, false, false, false
  local found_node, epoch, revision, extra, extra_no, adjusted = 0, 0, 0, 0, 0, 0
  if state and byte(state, 2) == STAMPED then
    check_head(state, 56)
    local count
    count, found_node, epoch, revision, extra, extra_no, adjusted = unpack_from('<I6I8I8I8I8I8I8', state, 3)
    if count > 0 or found_node > MAX or epoch > REVISION_MAX or revision > REVISION_MAX or extra > MAX or extra_no > MAX
      or adjusted > REVISION_MAX then
      check_range(0, count, 0, 0)
      check_range(1, found_node, 0, MAX)
      check_range(2, epoch, 0, REVISION_MAX)
      check_range(3, revision, 0, REVISION_MAX)
      check_range(4, extra, 0, MAX)
      check_range(5, extra_no, 0, MAX)
      check_range(6, adjusted, 0, REVISION_MAX)
    end
    extra, is_stamped = extra - EXTRA_ZERO, true
    is_current = node > 0 and found_node == node and revision < REVISION_MAX
    if #state > 56 then
      account = state:sub(57)
      check_head(account, 8)
      local version, found_kind = byte(account, 1, 2)
      if version ~= 1 then
        corrupt(VERSION, 0, version)
      end
      if found_kind ~= QUOTA and found_kind ~= METER then
        corrupt(KIND, 0, found_kind)
      end
      if found_kind ~= kind then
        -- The rule has changed its algorithm.
        account, is_current = nil, false
      end
    end
  elseif state and byte(state, 2) == kind then
    account, is_raw = state, true
  end

  if is_current and extra == 0 and op ~= RESTORE and op ~= EXTRA and op ~= ADJUST and op ~= USAGE then
    -- The usual case. Without corrections it does not matter whether their period is over.
    local verdict, number, remaining, reset, mark_kind, mark_time, change, expires, new_record, record_expires, free_at =
      twins[kind](account, now, op, cost, token, extra_arg, mark, numbers_at, record)
    if change and op ~= PEEK then
      revision = revision + 1
      change = pack_stamp(node, epoch, revision, 0, extra_no, adjusted) .. change
    end
    stamp_epoch, stamp_revision, stamp_adjusted = epoch, revision, adjusted
    return verdict, number, remaining, reset, mark_kind, mark_time, change, expires, new_record, record_expires, free_at
  end

  -- The numbers of an account without state, for answers that change none.
  local none_verdict, none_number, none_remaining, none_reset = twins[kind](nil, now, PEEK, 0, '', 0, NONE, numbers_at)
  if not is_current and op ~= RESTORE then
    if none_verdict == RECOMPUTE then
      if op == REFUND and mark ~= HELD then
        return NOT_HELD, 0, none_remaining, none_reset, NONE, 0
      end
      return RECOMPUTE, none_number, none_remaining, none_reset, NONE, 0
    end
    return UNVERIFIED, 0, none_remaining, none_reset, NONE, 0
  end

  local in_force, start = false, 0
  if account then
    -- Raises an error if it is corrupt.
    twins[kind](account, now, PEEK, 0, '', 0, NONE, numbers_at)
    if kind == METER then
      local _, expiry = unpack_from('<dd', batch, numbers_at)
      local touched = unpack_from('<I8', account, 17)
      in_force = max(now, touched) < min(touched + expiry, MAX)
    else
      local _, _, rolling = unpack_from('<ddd', batch, numbers_at)
      local ends, seen
      start, ends, seen = unpack_from('<I8I8I8', account, 9)
      in_force = max(now, seen) < (rolling > 0 and min(start + rolling, MAX) or ends)
    end
  end

  if op == RESTORE and not is_current then
    if node == 0 then
      return UNVERIFIED, 0, none_remaining, none_reset, NONE, 0
    elseif none_verdict == RECOMPUTE then
      return RECOMPUTE, none_number, none_remaining, none_reset, NONE, 0
    end
    local _, ends, _, given, given_no, given_epoch, known = unpack_from('<ddddddd', token)
    if ends > 0 and ends <= now then
      -- Of an older period.
      return DONE, 0, none_remaining, none_reset, NONE, 0
    end
    if not (is_stamped and in_force and (known == 0 or extra_no > given_no)) then
      extra, extra_no = given, given_no
    end
    local next_account, expires, opening =
      restored(kind, in_force and account or nil, is_raw, now, cost, extra_arg, token, numbers_at)
    stamp_epoch, stamp_revision, stamp_adjusted, stamp_extra = given_epoch, 0, adjusted, extra
    local head = pack_stamp(node, given_epoch, 0, extra, extra_no, adjusted)
    return DONE, opening, none_remaining, none_reset, NONE, 0, head .. next_account, expires
  end

  local in_force_extra = extra
  if kind == QUOTA and account and not in_force then
    in_force_extra = 0
  end
  stamp_epoch, stamp_revision, stamp_adjusted, stamp_extra = epoch, revision, adjusted, in_force_extra

  if op == RESTORE then
    return DONE, 0, none_remaining, none_reset, NONE, 0
  elseif op == EXTRA then
    local given, period = unpack_from('<dd', token)
    if cost <= extra_no or kind == QUOTA and not (in_force and start == period) then
      return DONE, 0, none_remaining, none_reset, NONE, 0
    end
    extra, extra_no, revision = given, cost, revision + 1
    stamp_revision, stamp_extra = revision, extra
    return DONE, 1, none_remaining, none_reset, NONE, 0, pack_stamp(node, epoch, revision, extra, extra_no, adjusted) .. (account or '')
  elseif op == ADJUST then
    local subtract, given_epoch, given_adjusted, period = unpack_from('<dddd', token)
    if not in_force or kind == QUOTA and start ~= period or epoch ~= given_epoch or adjusted ~= given_adjusted then
      return DONE, 0, none_remaining, none_reset, NONE, 0
    end
    local next_account, amount = adjusted_account(kind, account, subtract, cost)
    extra, revision, adjusted = in_force_extra, revision + 1, adjusted < REVISION_MAX and adjusted + 1 or 0
    stamp_revision, stamp_adjusted = revision, adjusted
    return DONE, amount, none_remaining, none_reset, NONE, 0, pack_stamp(node, epoch, revision, extra, extra_no, adjusted) .. next_account
  end

  local asked = op
  if op == USAGE and kind == METER then
    -- A meter holds nothing, so a record of no units says all.
    op, cost = RECORD, 0
  end
  local verdict, number, remaining, reset, mark_kind, mark_time, change, expires, new_record, record_expires, free_at
  if in_force_extra == 0 then
    verdict, number, remaining, reset, mark_kind, mark_time, change, expires, new_record, record_expires, free_at =
      twins[kind](account, now, op, cost, token, extra_arg, mark, numbers_at, record)
  else
    verdict, number, remaining, reset, mark_kind, mark_time, change, expires, new_record, record_expires, free_at =
      with_extra(kind, in_force_extra, account, now, op, cost, token, extra_arg, mark, numbers_at, record)
  end
  if asked == USAGE and kind == METER then
    return USED, 0, remaining, reset, NONE, 0
  end
  if change and op ~= PEEK then
    extra, revision = in_force_extra, revision + 1
    stamp_revision = revision
    change = pack_stamp(node, epoch, revision, extra, extra_no, adjusted) .. change
  end
  return verdict, number, remaining, reset, mark_kind, mark_time, change, expires, new_record, record_expires, free_at
end
