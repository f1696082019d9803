// A document -> ids.
//
// In: valid UTF-8. Out: ids appended to a vector, and on request the byte at which each token starts. `Encoder` never changes
// after it is made; a `Worker` is what one thread needs beside it: a cache and scratch memory, bounded.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "bpe.hpp"
#include "cache.hpp"
#include "cuts.hpp"
#include "model.hpp"
#include "normalizer.hpp"
#include "unigram.hpp"

namespace tokpress {

// Ids as they are made, with room behind them so that four can be written at once.
class Output {
 public:
  uint32_t* room(size_t more) {
    if (used_ + more > ids_.size()) ids_.resize((used_ + more) * 2 + 1024);
    return ids_.data() + used_;
  }
  void advance(size_t count) { used_ += count; }
  void drop(size_t count) { used_ -= count; }
  size_t size() const { return used_; }
  const uint32_t* data() const { return ids_.data(); }
  uint32_t* data() { return ids_.data(); }
  // The ids themselves; nothing is left here.
  std::vector<uint32_t> take() {
    ids_.resize(used_);
    used_ = 0;
    return std::move(ids_);
  }

 private:
  std::vector<uint32_t> ids_;
  size_t used_ = 0;
};

struct Worker {
  static constexpr size_t kKeptBytes = size_t{8} << 20;  // of canonical text, when a document is done

  Cache cache;
  Canonical text;
  std::vector<size_t> origins;
  Tokens tokens;
  Bpe::Scratch bpe;
  Unigram::Scratch unigram;

  void tidy();  // gives back what an unusually long document needed
};

class Encoder {
 public:
  static constexpr size_t kMostBytes = size_t{1} << 31;  // of a document's canonical text

  Encoder(Model model, bool simd);
  Encoder(const Encoder&) = delete;
  Encoder& operator=(const Encoder&) = delete;

  void encode(const uint8_t* text, size_t size, Worker& worker, Output& out) const;
  void encode(const uint8_t* text, size_t size, Worker& worker, Output& out, std::vector<int64_t>& starts) const;

  const Model& model() const { return model_; }

 private:
  struct Segment {
    const uint8_t* text;
    uint32_t size;
    Cache::Key key;
  };
  static constexpr uint32_t kBatch = 64;

  void encode_canonical(Worker& worker, Output& out) const;
  template <bool kBpe>
  void flush(const Segment* segments, uint32_t count, float& score, Worker& worker, Output& out) const;
  void missed(const Segment& segment, float& score, Worker& worker, Output& out) const;
  void append(const Answer& answer, float& score, Output& out) const;
  void merge_unknown(size_t begin, Output& out) const;
  void find_starts(size_t begin, Worker& worker, Output& out, std::vector<int64_t>& starts) const;

  Model model_;
  Normalizer normalizer_;
  Cuts cuts_;
  Bpe bpe_;
  Unigram unigram_;
  std::vector<uint32_t> lengths_;  // of pieces, in canonical bytes; 0: unknown, kByte: a byte of an unknown character
  bool merges_unknown_;
};

}  // namespace tokpress
