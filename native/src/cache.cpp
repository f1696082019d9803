#include "cache.hpp"

#include <new>

#include "memory.hpp"

namespace tokpress {
namespace {

#define ROW(size)                                                                                      \
  {size >= 8 ? ~uint64_t{0} : (uint64_t{1} << (size % 8 * 8)) - 1,                                     \
   size >= 16 ? ~uint64_t{0} : size > 8 ? (uint64_t{1} << (size % 8 * 8)) - 1 : 0,                     \
   size >= 24 ? ~uint64_t{0} : size > 16 ? (uint64_t{1} << (size % 8 * 8)) - 1 : 0}

}  // namespace

const uint64_t Cache::kMasks[kShortBytes + 1][3] = {
    ROW(0),  ROW(1),  ROW(2),  ROW(3),  ROW(4),  ROW(5),  ROW(6),  ROW(7),  ROW(8),  ROW(9),  ROW(10), ROW(11), ROW(12),
    ROW(13), ROW(14), ROW(15), ROW(16), ROW(17), ROW(18), ROW(19), ROW(20), ROW(21), ROW(22), ROW(23), ROW(24)};
#undef ROW

// Zeroed memory whose pages are not touched before they are used: a cache costs nothing to make.
Cache::Cache(unsigned log_entries)
    : mask_((uint64_t{1} << (log_entries - 1)) - 1),
      slot_mask_((uint64_t{1} << (log_entries - 3)) - 1),
      pool_words_(size_t{4} << log_entries) {
  memory_.reset(std::calloc(bytes() + kHugePage, 1));
  if (!memory_) throw std::bad_alloc();
  const auto at = (reinterpret_cast<uintptr_t>(memory_.get()) + kHugePage - 1) / kHugePage * kHugePage;
  entries_ = reinterpret_cast<Entry*>(at);
  slots_ = reinterpret_cast<Slot*>(entries_ + 2 * (mask_ + 1));
  pool_ = reinterpret_cast<uint32_t*>(slots_ + slot_mask_ + 1);
  if (bytes() >= kHugePage) ask_for_huge_pages(entries_, bytes());
}

size_t Cache::bytes() const { return (mask_ + 1) * 2 * sizeof(Entry) + (slot_mask_ + 1) * sizeof(Slot) + pool_words_ * 4; }

uint64_t Cache::long_hash(const uint8_t* text, uint32_t size) {
  uint64_t hash = 0x9E3779B97F4A7C15u ^ size, word;
  uint32_t i = 0;
  for (; i + 8 <= size; i += 8) {
    std::memcpy(&word, text + i, 8);
    hash = mix(hash ^ word, 0xE7037ED1A0B428DBu);
  }
  word = 0;
  std::memcpy(&word, text + i, size - i);
  return mix(hash ^ word, 0x8EBC6AF09C88C6E3u);
}

bool Cache::find_long(uint64_t hash, const uint8_t* text, uint32_t size, Answer& answer) const {
  const Slot& slot = slots_[hash & slot_mask_];
  if (slot.era != era_ || slot.hash != hash || slot.size != size) return false;
  const uint32_t* ids = pool_ + slot.at;
  if (std::memcmp(ids + 2 * slot.count, text, size) != 0) return false;
  answer = {ids, reinterpret_cast<const float*>(ids + slot.count), slot.count, slot.limit};
  return true;
}

void Cache::put(const Key& key, uint32_t size, const Answer& answer) {
  Entry* entry = bucket(key.hash);
  if (entry[0].size) entry[1] = entry[0];  // what came last stays longest
  Entry& made = entry[0];
  std::memcpy(made.key, key.words, sizeof made.key);
  made.size = static_cast<uint8_t>(size);
  made.count = static_cast<uint8_t>(answer.count);
  made.limit = answer.limit;
  for (uint32_t i = 0; i < kShortIds; ++i) {
    made.ids[i] = i < answer.count ? answer.ids[i] : 0;
    made.scores[i] = i < answer.count ? answer.scores[i] : 0;
  }
}

void Cache::put_long(uint64_t hash, const uint8_t* text, uint32_t size, const Answer& answer) {
  const size_t words = 2 * size_t{answer.count} + (size + 3) / 4;
  if (words > pool_words_ / 16) return;
  if (pool_used_ + words > pool_words_) {
    pool_used_ = 0;
    ++era_;
  }
  uint32_t* at = pool_ + pool_used_;
  std::memcpy(at, answer.ids, 4 * size_t{answer.count});
  std::memcpy(at + answer.count, answer.scores, 4 * size_t{answer.count});
  std::memcpy(at + 2 * size_t{answer.count}, text, size);
  slots_[hash & slot_mask_] = {hash, static_cast<uint32_t>(pool_used_), size, answer.count, answer.limit, era_};
  pool_used_ += words;
}

}  // namespace tokpress
