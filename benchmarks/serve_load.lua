-- Sends the requests of a directory in turn and prints the result as JSON. wrk -s serve_load.lua URL -- DIRECTORY COUNT
local requests, last = {}, 0

function init(arguments)
  for index = 1, tonumber(arguments[2]) do
    local file = assert(io.open(arguments[1] .. "/" .. index, "rb"))
    requests[index] = file:read("*a")
    file:close()
  end
end

function request()
  last = last % #requests + 1
  return requests[last]
end

function done(summary, latency)
  local errors = summary.errors
  local broken = errors.connect + errors.read + errors.write + errors.timeout
  io.write(string.format('\n{"requests": %d, "seconds": %f, "broken": %d, "refused": %d, "p50": %f, "p99": %f}\n',
    summary.requests, summary.duration / 1e6, broken, errors.status, latency:percentile(50) / 1e6,
    latency:percentile(99) / 1e6))
end
