// Large tables that are read at random.
//
// On pages of 4 kB most reads of such a table first have to find its page, which costs more than the read itself: half of the
// time of an encoder was spent there. On Linux arrays of 2 MB and more ask for pages of 2 MB; elsewhere, and where the system
// has none left, they lie in plain memory.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace tokpress {

constexpr size_t kHugePage = size_t{2} << 20;

inline void ask_for_huge_pages([[maybe_unused]] void* memory, [[maybe_unused]] size_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  madvise(memory, bytes, MADV_HUGEPAGE);  // if it is refused, pages are small
#endif
}

// Not zeroed; aligned to a line of the processor's cache at least.
inline void* take_memory(size_t bytes) {
  void* memory = nullptr;
  if (bytes < kHugePage) {
    memory = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
  } else {
    memory = std::aligned_alloc(kHugePage, (bytes + kHugePage - 1) / kHugePage * kHugePage);
    if (memory) ask_for_huge_pages(memory, bytes);
  }
  if (!memory) throw std::bad_alloc();
  return memory;
}

template <class T>
struct HugeAllocator {
  using value_type = T;
  HugeAllocator() = default;
  template <class U>
  HugeAllocator(const HugeAllocator<U>&) {}
  T* allocate(size_t count) { return static_cast<T*>(take_memory(count * sizeof(T))); }
  void deallocate(T* memory, size_t) { std::free(memory); }
  bool operator==(const HugeAllocator&) const { return true; }
  bool operator!=(const HugeAllocator&) const { return false; }
};

template <class T>
using HugeVector = std::vector<T, HugeAllocator<T>>;

// Numbers as they are made: room that is not zeroed first.
template <class T>
class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)), room_(std::exchange(other.room_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(room_, other.room_);
    return *this;
  }
  ~Buffer() { std::free(data_); }

  // Where so many more may be written; `advance` then says how many were.
  T* room(size_t more) {
    if (size_ + more > room_) grow(size_ + more);
    return data_ + size_;
  }
  void advance(size_t count) { size_ += count; }
  void drop(size_t count) { size_ -= count; }
  void push_back(T value) { *room(1) = value, advance(1); }

  size_t size() const { return size_; }
  const T* data() const { return data_; }
  T* data() { return data_; }
  T& operator[](size_t i) { return data_[i]; }

 private:
  void grow(size_t least) {
    const size_t room = least > room_ * 2 ? least : room_ * 2;
    T* larger = static_cast<T*>(take_memory(room * sizeof(T)));
    if (size_) std::memcpy(larger, data_, size_ * sizeof(T));
    std::free(data_);
    data_ = larger;
    room_ = room;
  }

  T* data_ = nullptr;
  size_t size_ = 0, room_ = 0;
};

}  // namespace tokpress
