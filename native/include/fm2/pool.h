// A small thread pool for parallel loops.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace fm2 {

// The default number of threads: FM2_THREADS, or the number of processors available to the process.
std::size_t default_threads();

// Calls body(i) for every i in [0, count) on up to `threads` threads (0: default_threads()), including the caller's.
// Threads take iterations one by one, in order. The first exception is rethrown after all threads have stopped.
// A loop that starts while another is running (on a second thread, or inside a body) runs on its caller's thread only.
void parallel_for(std::size_t count, std::size_t threads, const std::function<void(std::size_t)>& body);

// Calls body(begin, end) for the ranges of up to `size` into which [0, count) is divided. A single range runs without a std::function,
// which would allocate.
template <class Body>
void parallel_ranges(std::size_t count, std::size_t size, std::size_t threads, const Body& body) {
    if (count <= size) return count ? body(0, count) : void();
    parallel_for((count + size - 1) / size, threads, [&](std::size_t task) { body(task * size, std::min(count, (task + 1) * size)); });
}

// Blocks threads until all of them have arrived.
class Barrier {
public:
    explicit Barrier(std::size_t threads);
    void wait();

private:
    const std::uint32_t threads_, spins_;
    alignas(64) std::atomic<std::uint32_t> arrived_{0};
    alignas(64) std::atomic<std::uint32_t> round_{0};
};

// One of several threads that run concurrently.
struct Member {
    std::size_t number, of;  // number < of
    Barrier& barrier;        // shared by all members
};

// Calls body once for each of up to `threads` members (0: default_threads()), which may wait for each other. The body must not
// throw. If another loop is already running, the caller is the only member.
void parallel_team(std::size_t threads, const std::function<void(const Member&)>& body);

}  // namespace fm2
