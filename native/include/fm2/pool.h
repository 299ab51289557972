// A small pool of threads that share the iterations of a loop.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace fm2 {

// What a loop may use when its caller does not say: FM2_THREADS, or as many as the process has processors.
std::size_t default_threads();

// Calls body(i) for every i in [0, count), on up to `threads` threads (0: default_threads()), the caller's among them.
// Iterations are handed out one by one, in order. The first exception is thrown again here when all have stopped.
// A loop that is started while another runs (from a second thread, or from within a body) runs on its caller's thread.
void parallel_for(std::size_t count, std::size_t threads, const std::function<void(std::size_t)>& body);

// Where threads wait until all of them have come.
class Barrier {
public:
    explicit Barrier(std::size_t threads);
    void wait();

private:
    const std::uint32_t threads_, spins_;
    alignas(64) std::atomic<std::uint32_t> arrived_{0};
    alignas(64) std::atomic<std::uint32_t> round_{0};
};

// One of several threads that run at the same time.
struct Member {
    std::size_t number, of;  // number < of
    Barrier& barrier;        // of all
};

// Calls body once for each of up to `threads` members (0: default_threads()), which may wait for one another. The body must not
// throw. Where another loop runs already, the caller is the only member.
void parallel_team(std::size_t threads, const std::function<void(const Member&)>& body);

}  // namespace fm2
