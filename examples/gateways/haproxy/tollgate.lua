-- http-request lua.tollgate open|closed: asks Tollgate about a request, and sends the response if it is refused.
-- An allowed request continues, with txn.ratelimit_policy and txn.ratelimit set. If Tollgate does not answer, the
-- request continues (`open`) or gets 503 (`closed`).

local ON_ALLOWED = { "ratelimit-policy", "ratelimit" }
local ON_REFUSED = { "ratelimit-policy", "ratelimit", "retry-after", "content-type", "cache-control" }

-- Calls `copy` with each of these header fields that the response has.
local function copy_headers(names, response, copy)
    for _, name in ipairs(names) do
        local values = response.headers[name]
        if values then
            copy(name, values[0])
        end
    end
end

local function tollgate(txn, when_down)
    local response = core.httpclient():get({
        url = "http://tollgate/v1/authorize?header=api_key:x-api-key",
        dst = "abns@tollgate-10000",
        -- Only these headers reach Tollgate. Of the client's own headers, only the API key does.
        headers = {
            ["x-forwarded-for"] = { txn.f:src() },
            ["x-forwarded-method"] = { txn.f:method() },
            ["x-forwarded-uri"] = { txn.f:pathq() },
            ["x-forwarded-host"] = { txn.f:req_fhdr("host") },
            ["x-api-key"] = { txn.f:req_fhdr("x-api-key") },
        },
    })
    if not (response.headers and response.headers["tollgate-answered"]) then
        if when_down ~= "open" then
            txn:done(txn:reply({ status = 503 }))
        end
    elseif response.status == 200 then
        copy_headers(ON_ALLOWED, response, function(name, value)
            txn:set_var("txn." .. name:gsub("-", "_"), value)
        end)
    else
        local reply = txn:reply({ status = response.status, body = response.body })
        copy_headers(ON_REFUSED, response, function(name, value)
            reply:add_header(name, value)
        end)
        txn:done(reply)
    end
end

core.register_action("tollgate", { "http-req" }, tollgate, 1)
