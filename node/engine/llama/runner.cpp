#include "runner.h"

#include <cerrno>
#include <unistd.h>

runner::~runner() {
    {
        std::lock_guard<std::mutex> lock(mu_);
        stop_ = true;
    }
    changed_.notify_one();
    thread_.join();
}

void runner::start(std::function<void()> task) {
    {
        std::lock_guard<std::mutex> lock(mu_);
        task_ = std::move(task);
    }
    changed_.notify_one();
}

void runner::loop() {
    std::unique_lock<std::mutex> lock(mu_);
    for (;;) {
        changed_.wait(lock, [this] { return stop_ || task_; });
        if (stop_) {
            return;
        }
        std::function<void()> task = std::move(task_);
        task_ = nullptr;
        lock.unlock();
        task();
        // One byte in an empty pipe: this neither waits nor fails.
        while (write(done_, "", 1) < 0 && errno == EINTR) {
        }
        lock.lock();
    }
}
