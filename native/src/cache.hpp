// Segments that were encoded before.
//
// In: a segment's bytes. Out: its ids, their scores, and the score up to which they stand. Bounded: a table of 64-byte
// entries for short segments, and one of fixed size with a pool of memory for longer ones, which starts anew when it is full.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace tokpress {

struct Answer {
  const uint32_t* ids;
  const float* scores;  // as many; a score that belongs to no id of its own stands with 0s before it
  uint32_t count;
  float limit;
};

class Cache {
 public:
  static constexpr uint32_t kShortBytes = 24;
  static constexpr uint32_t kShortIds = 4;
  static constexpr uint32_t kMostBytes = 512;  // of a segment that is kept

  struct alignas(64) Entry {
    uint64_t key[3];  // with zeros after it
    uint8_t size;     // 0: nothing is here; a segment has a byte at least
    uint8_t count;
    uint8_t unused[2];
    float limit;
    uint32_t ids[kShortIds];
    float scores[kShortIds];
  };
  static_assert(sizeof(Entry) == 64);

  struct Key {
    uint64_t words[3];
    uint64_t hash;
  };

  explicit Cache(unsigned log_entries = 18);  // 13 at least

  // Of up to kShortBytes bytes; 24 bytes are read. Word by word, and written where it stays: a copy of what was just
  // written in other widths would have to wait for it.
  static void short_key(const uint8_t* text, uint32_t size, Key& key) {
    uint64_t first, second, third;
    std::memcpy(&first, text, 8);
    std::memcpy(&second, text + 8, 8);
    std::memcpy(&third, text + 16, 8);
    key.words[0] = first &= kMasks[size][0];
    key.words[1] = second &= kMasks[size][1];
    key.words[2] = third &= kMasks[size][2];
    key.hash = mix(first ^ 0xA0761D6478BD642Fu ^ size, second ^ 0xE7037ED1A0B428DBu) ^
               mix(third ^ 0x8EBC6AF09C88C6E3u, 0x589965CC75374CC3u);
  }
  static uint64_t long_hash(const uint8_t* text, uint32_t size);

  Entry* bucket(uint64_t hash) const { return entries_ + (hash & mask_) * 2; }

  // In both: nullptr if it is not there.
  const Entry* find(const Key& key, uint32_t size) const {
    const Entry* entry = bucket(key.hash);
    if (same(entry[0], key, size)) return entry;
    return same(entry[1], key, size) ? entry + 1 : nullptr;
  }
  bool find_long(uint64_t hash, const uint8_t* text, uint32_t size, Answer& answer) const;

  void put(const Key& key, uint32_t size, const Answer& answer);  // of up to kShortIds ids
  void put_long(uint64_t hash, const uint8_t* text, uint32_t size, const Answer& answer);

  size_t bytes() const;  // at most

 private:
  struct Slot {
    uint64_t hash;
    uint32_t at;  // in the pool: ids, scores, text
    uint32_t size, count;
    float limit;
    uint32_t era;  // 0 or another than the cache's: nothing is here
  };
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };

  static bool same(const Entry& entry, const Key& key, uint32_t size) {
    return (((entry.key[0] ^ key.words[0]) | (entry.key[1] ^ key.words[1]) | (entry.key[2] ^ key.words[2])) == 0) &
           (entry.size == size);
  }
  static uint64_t mix(uint64_t a, uint64_t b) {
    const auto product = static_cast<unsigned __int128>(a) * b;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  }

  static const uint64_t kMasks[kShortBytes + 1][3];

  std::unique_ptr<void, Free> memory_;
  Entry* entries_;  // in it, as all that follows
  Slot* slots_;
  uint32_t* pool_;
  uint64_t mask_, slot_mask_;
  size_t pool_words_;
  size_t pool_used_ = 0;
  uint32_t era_ = 1;
};

}  // namespace tokpress
