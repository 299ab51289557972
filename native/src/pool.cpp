#include "fm2/pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>

namespace fm2 {
namespace {

std::size_t available_processors() {
#ifdef __linux__
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
#endif
    return std::max(1u, std::thread::hardware_concurrency());
}

inline void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

// Spins briefly until a condition holds: work often arrives, and ends, sooner than a sleeping thread wakes up.
template <class Condition>
void spin_until(std::size_t threads, const Condition& condition) {
    constexpr int max_spins = 4000;  // about 0.1 ms
    static const std::size_t processors = available_processors();
    for (int i = 0; i < (threads > processors ? 0 : max_spins) && !condition(); ++i) pause();
}

class Pool {
public:
    void run(std::size_t count, std::size_t threads, const std::function<void(std::size_t)>& body) {
        std::unique_lock lock(mutex_);
        while (started_ + 1 < threads) {
            std::thread([this, worker = started_] { work(worker); }).detach();
            ++started_;
        }
        body_ = &body;
        count_ = count;
        next_ = 0;
        failure_ = nullptr;
        helpers_ = threads - 1;
        busy_ = threads - 1;
        ++round_;
        const bool asleep = asleep_ > 0;
        lock.unlock();
        if (asleep) wake_.notify_all();
        run_iterations();
        const auto done = [this] { return busy_ == 0; };
        spin_until(threads, done);
        lock.lock();
        done_.wait(lock, done);
        if (failure_) std::rethrow_exception(failure_);
    }

private:
    void work(std::size_t worker) {
        std::size_t seen = 0;
        bool helped = false;
        for (;;) {
            const auto called = [&] { return round_ != seen; };
            if (helped) spin_until(helpers_ + 1, called);
            std::unique_lock lock(mutex_);
            ++asleep_;
            wake_.wait(lock, called);
            --asleep_;
            seen = round_;
            helped = worker < helpers_;
            lock.unlock();
            if (!helped) continue;
            run_iterations();
            if (--busy_ > 0) continue;
            lock.lock();  // a waiting caller has now either seen busy_ == 0, or sleeps and can be notified
            lock.unlock();
            done_.notify_one();
        }
    }

    void run_iterations() {
        for (std::size_t i; (i = next_.fetch_add(1)) < count_;) {
            try {
                (*body_)(i);
            } catch (...) {
                std::lock_guard lock(mutex_);
                if (!failure_) failure_ = std::current_exception();
                next_ = count_;
            }
        }
    }

    std::mutex mutex_;
    std::condition_variable wake_, done_;
    std::size_t started_ = 0, asleep_ = 0;
    std::atomic<std::size_t> helpers_{0}, busy_{0}, round_{0};
    const std::function<void(std::size_t)>* body_ = nullptr;
    std::size_t count_ = 0;
    std::atomic<std::size_t> next_{0};
    std::exception_ptr failure_;
};

// Never destroyed, because its threads live until the process ends. fork() copies no threads, so a child gets a new pool.
std::atomic<Pool*> pool{nullptr};
std::atomic_flag in_use = ATOMIC_FLAG_INIT;

Pool& shared_pool() {
    static std::once_flag once;
    std::call_once(once, [] {
        pool = new Pool;
        pthread_atfork(nullptr, nullptr, [] {
            pool = new Pool;
            in_use.clear();
        });
    });
    return *pool;
}

// Exclusive use of the pool; granted to a caller that wants more than one thread while the pool is idle.
class PoolLock {
public:
    explicit PoolLock(std::size_t threads) : taken_(threads > 1 && !in_use.test_and_set()) {}
    PoolLock(const PoolLock&) = delete;
    ~PoolLock() {
        if (taken_) in_use.clear();
    }
    explicit operator bool() const { return taken_; }

private:
    const bool taken_;
};

}  // namespace

std::size_t default_threads() {
    static const std::size_t threads = [] {
        const char* text = std::getenv("FM2_THREADS");
        if (!text || !*text) return available_processors();
        char* end = nullptr;
        const long value = std::strtol(text, &end, 10);
        if (*end || value < 1 || value > 1024)
            throw std::runtime_error("FM2_THREADS must be a number between 1 and 1024, got '" + std::string(text) + "'");
        return static_cast<std::size_t>(value);
    }();
    return threads;
}

void parallel_for(std::size_t count, std::size_t threads, const std::function<void(std::size_t)>& body) {
    threads = std::min(threads ? threads : default_threads(), count);
    const PoolLock lock(threads);
    if (lock) return shared_pool().run(count, threads, body);
    for (std::size_t i = 0; i < count; ++i) body(i);
}

// Spinning is fastest if every thread has a processor of its own; otherwise, waiting threads yield theirs.
Barrier::Barrier(std::size_t threads)
    : threads_(static_cast<std::uint32_t>(threads)), spins_(threads > available_processors() ? 0 : 1000) {}

void Barrier::wait() {
    const std::uint32_t round = round_.load(std::memory_order_acquire);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads_) {
        arrived_.store(0, std::memory_order_relaxed);
        // Sequentially consistent: notify_all() looks for waiting threads, and a weaker store may become visible only after
        // that. A thread that is about to sleep would then neither see the new round nor be woken.
        round_.store(round + 1, std::memory_order_seq_cst);
        round_.notify_all();
        return;
    }
    for (std::uint32_t i = 0; i < spins_; ++i) {
        if (round_.load(std::memory_order_acquire) != round) return;
        pause();
    }
    round_.wait(round, std::memory_order_acquire);
}

void parallel_team(std::size_t threads, const std::function<void(const Member&)>& body) {
    threads = threads ? threads : default_threads();
    const PoolLock lock(threads);
    if (!lock) threads = 1;
    Barrier barrier(threads);
    if (!lock) return body({0, 1, barrier});
    // A pool thread takes an iteration only after finishing its previous one, so every member runs on a thread of its own.
    shared_pool().run(threads, threads, [&](std::size_t number) { body({number, threads, barrier}); });
}

}  // namespace fm2
