// What a segment becomes.
//
// Ids and, for unigram models, what each adds to the score. Where one unknown character becomes several byte tokens, the
// first has its score and the others 0. Unknown tokens beside each other are still apart here.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "cache.hpp"
#include "model.hpp"

namespace tokpress {

class Tokens {
 public:
  void clear() { ids_.clear(), scores_.clear(); }
  void add(uint32_t id, float score) { ids_.push_back(id), scores_.push_back(score); }

  // An unknown character.
  void add_unknown(const Model& model, const uint8_t* text, size_t size, float score) {
    if (!model.byte_fallback) return add(model.unknown_id, score);
    static constexpr uint8_t kSpace[3] = {0xE2, 0x96, 0x81};
    if (*text == ' ') text = kSpace, size = 3;
    for (size_t i = 0; i < size; ++i) add(model.byte_ids[text[i]], i ? 0 : score);
  }

  void give_back(size_t most_bytes) {
    if (ids_.capacity() * 4 > most_bytes) std::vector<uint32_t>().swap(ids_), std::vector<float>().swap(scores_);
  }

  Answer answer(float limit) const {
    return {ids_.data(), scores_.data(), static_cast<uint32_t>(ids_.size()), limit};
  }

 private:
  std::vector<uint32_t> ids_;
  std::vector<float> scores_;
};

}  // namespace tokpress
