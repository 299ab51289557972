// A small pool of threads that share the iterations of a loop.
#pragma once

#include <cstddef>
#include <functional>

namespace fm2 {

// What a loop may use when its caller does not say: FM2_THREADS, or as many as the process has processors.
std::size_t default_threads();

// Calls body(i) for every i in [0, count), on up to `threads` threads (0: default_threads()), the caller's among them.
// Iterations are handed out one by one, in order. The first exception is thrown again here when all have stopped.
// A loop that is started while another runs (from a second thread, or from within a body) runs on its caller's thread.
void parallel_for(std::size_t count, std::size_t threads, const std::function<void(std::size_t)>& body);

}  // namespace fm2
