-- http-request lua.tollgate open|closed: asks Tollgate, and answers what it refuses.
-- An allowed request goes on, with txn.ratelimit_policy and txn.ratelimit set. If Tollgate does not answer, it goes on
-- with `open` and is answered 503 with `closed`.

local STANDING = { "ratelimit-policy", "ratelimit" }
local REFUSAL = { "ratelimit-policy", "ratelimit", "retry-after", "content-type", "cache-control" }

-- Calls `tell` with each of these header fields that the answer has.
local function each(names, answer, tell)
    for _, name in ipairs(names) do
        local values = answer.headers[name]
        if values then
            tell(name, values[0])
        end
    end
end

local function tollgate(txn, when_down)
    local answer = core.httpclient():get({
        url = "http://tollgate/v1/authorize?header=api_key:x-api-key",
        dst = "abns@tollgate-10000",
        -- Tollgate hears what HAProxy says, and nothing of what the client says but its key.
        headers = {
            ["x-forwarded-for"] = { txn.f:src() },
            ["x-forwarded-method"] = { txn.f:method() },
            ["x-forwarded-uri"] = { txn.f:pathq() },
            ["x-forwarded-host"] = { txn.f:req_fhdr("host") },
            ["x-api-key"] = { txn.f:req_fhdr("x-api-key") },
        },
    })
    if not (answer.headers and answer.headers["tollgate-answered"]) then
        if when_down ~= "open" then
            txn:done(txn:reply({ status = 503 }))
        end
    elseif answer.status == 200 then
        each(STANDING, answer, function(name, value)
            txn:set_var("txn." .. name:gsub("-", "_"), value)
        end)
    else
        local reply = txn:reply({ status = answer.status, body = answer.body })
        each(REFUSAL, answer, function(name, value)
            reply:add_header(name, value)
        end)
        txn:done(reply)
    end
end

core.register_action("tollgate", { "http-req" }, tollgate, 1)
