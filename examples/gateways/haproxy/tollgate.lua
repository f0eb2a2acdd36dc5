-- http-request lua.tollgate open|closed: asks Tollgate, and answers what it refuses.
-- An allowed request goes on, with txn.ratelimit_policy and txn.ratelimit set. If Tollgate does not answer, it goes on
-- with `open` and is answered 503 with `closed`.

local function first(fields, name)
    return fields and fields[name] and fields[name][0]
end

local function tollgate(txn, when_down)
    -- Tollgate hears what HAProxy says, and nothing of what the client says but its key.
    local asked = {
        ["x-forwarded-for"] = { txn.f:src() },
        ["x-forwarded-method"] = { txn.f:method() },
        ["x-forwarded-uri"] = { txn.f:pathq() },
        ["x-forwarded-host"] = { txn.f:req_fhdr("host") },
        ["x-api-key"] = { txn.f:req_fhdr("x-api-key") },
    }
    local answer = core.httpclient():get({
        url = "http://tollgate/v1/authorize?header=api_key:x-api-key",
        dst = "abns@tollgate-10000",
        headers = asked,
    })
    local told = { "ratelimit-policy", "ratelimit", "retry-after", "content-type", "cache-control" }

    if first(answer.headers, "tollgate-answered") == nil then
        if when_down ~= "open" then
            txn:done(txn:reply({ status = 503 }))
        end
    elseif answer.status == 200 then
        for _, name in ipairs({ "ratelimit-policy", "ratelimit" }) do
            local value = first(answer.headers, name)
            if value then
                txn:set_var("txn." .. name:gsub("-", "_"), value)
            end
        end
    else
        local reply = txn:reply({ status = answer.status, body = answer.body })
        for _, name in ipairs(told) do
            local value = first(answer.headers, name)
            if value then
                reply:add_header(name, value)
            end
        end
        txn:done(reply)
    end
end

core.register_action("tollgate", { "http-req" }, tollgate, 1)
