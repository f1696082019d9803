// A document -> ids.
//
// In: valid UTF-8. Out: ids appended to a buffer, and on request the byte at which each token starts. `Encoder` never changes
// after it is made; a `Worker` is what one thread needs beside it: a cache and scratch memory, bounded.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "bpe.hpp"
#include "cache.hpp"
#include "cuts.hpp"
#include "memory.hpp"
#include "model.hpp"
#include "normalizer.hpp"
#include "pretokens.hpp"
#include "unigram.hpp"

namespace tokpress {

using Output = Buffer<uint32_t>;

struct Worker {
  static constexpr size_t kKeptBytes = size_t{8} << 20;  // of canonical text, when a document is done

  explicit Worker(unsigned log_entries = 18) : cache(log_entries) {}

  Cache cache;
  Canonical text, replaced;
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
  void encode(const uint8_t* text, size_t size, Worker& worker, Output& out, Buffer<int64_t>& starts) const;

  // Does the text hold what only `tokenizers` itself can tell?
  bool unsettled(const uint8_t* text, size_t size) const { return model_.json.used && pretokens_.unsettled(text, size); }

  const Model& model() const { return model_; }

 private:
  struct Segment {
    const uint8_t* text;
    uint32_t size;
    Cache::Key key;
  };
  static constexpr uint32_t kBatch = 64;

  void encode_canonical(Worker& worker, Output& out) const;
  template <bool kAlone>
  void flush(const Segment* segments, uint32_t count, float& score, Worker& worker, Output& out) const;
  void encode_alone(const Segment& segment, Worker& worker) const;
  void missed(const Segment& segment, float& score, Worker& worker, Output& out) const;
  void append(const Answer& answer, float& score, Output& out) const;
  void merge_unknown(size_t begin, Output& out) const;
  void find_starts(size_t begin, Worker& worker, Output& out, Buffer<int64_t>& starts) const;

  Model model_;
  Normalizer normalizer_;
  Pretokens pretokens_;
  Cuts cuts_;
  Bpe bpe_;
  Unigram unigram_;
  std::vector<uint32_t> lengths_;  // of pieces, in canonical bytes; 0: unknown, kByte: a byte of an unknown character
  bool merges_unknown_;
  bool alone_;  // what a segment becomes depends on nothing before it
};

}  // namespace tokpress
