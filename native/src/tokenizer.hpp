// Documents -> flat ids and ends, on several threads.
//
// In: documents end to end, and where each begins. Out: all ids, and where each document's end. Threads are made for a call and
// end with it, so a process may fork at any time; workers, with their caches, are kept for the next call without a lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "encoder.hpp"

namespace tokpress {

struct Documents {
  std::vector<const uint8_t*> texts;  // or, if empty:
  const uint8_t* data = nullptr;
  const int64_t* offsets = nullptr;  // one more than documents
  size_t count = 0;
  std::vector<size_t> sizes;

  const uint8_t* text(size_t i) const { return texts.empty() ? data + offsets[i] : texts[i]; }
  size_t size(size_t i) const {
    return texts.empty() ? static_cast<size_t>(offsets[i + 1] - offsets[i]) : sizes[i];
  }
};

struct Batch {
  Buffer<uint32_t> ids;
  Buffer<int64_t> ends;
  Buffer<int64_t> starts;  // of tokens, in the bytes of their document, if asked for
};

class Tokenizer {
 public:
  static constexpr size_t kKeptWorkers = 64;

  // `literals`: text that stands for an id wherever it is found; what is between is encoded as texts of their own.
  Tokenizer(Model model, std::vector<std::pair<std::string, uint32_t>> literals, bool simd);
  ~Tokenizer();

  // Raises std::invalid_argument, with the document's number, if one is no valid UTF-8.
  Batch encode(const Documents& documents, size_t threads, bool with_starts) const;

  // Documents that are to be left to `tokenizers`. What is no valid UTF-8 is none of them: `encode` speaks up.
  Buffer<int64_t> unsettled(const Documents& documents) const;

  const Encoder& encoder() const { return encoder_; }

 private:
  struct Part;

  static Batch joined(std::vector<Part>& parts);

  void encode_part(const Documents& documents, Part& part, bool with_starts) const;
  void encode_document(const uint8_t* text, size_t size, Worker& worker, Part& part, bool with_starts) const;
  void encode_between(const uint8_t* text, size_t size, size_t at, Worker& worker, Part& part, bool with_starts) const;
  std::unique_ptr<Worker> take_worker() const;
  void keep_worker(std::unique_ptr<Worker> worker) const;

  Encoder encoder_;
  Trie literals_;
  bool starts_literal_[256] = {};
  mutable std::atomic<Worker*> workers_[kKeptWorkers] = {};
};

}  // namespace tokpress
