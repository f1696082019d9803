// Text -> canonical text as the normaliser and pre-tokenizer of a unigram `tokenizer.json` make it.
//
// In: valid UTF-8. Out: what `tokenizers` hands to its model: characters replaced by a `Precompiled` map, spaces stripped and
// joined, split by `WhitespaceSplit` and `Metaspace`; each U+2581 is one 0x20, and each word begins with one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "charsmap.hpp"
#include "graphemes.hpp"
#include "model.hpp"
#include "normalizer.hpp"

namespace tokpress {

class Pretokens {
 public:
  Pretokens() = default;
  explicit Pretokens(const Model& model);

  void run(const uint8_t* text, size_t size, Canonical& scratch, Canonical& out) const;

  // Is there a cluster whose end is not known here: a character that joins the next one, or one that may be part of a longer
  // cluster than a character and the marks after it?
  bool unsettled(const uint8_t* text, size_t size) const;

 private:
  void replace(const uint8_t* text, size_t size, Canonical& out) const;
  void split(const uint8_t* text, size_t size, Canonical& out) const;
  size_t cluster(const uint8_t* text, size_t size) const;

  Charsmap map_;
  Graphemes graphemes_;
  bool plain_[128] = {};  // no rule begins with it
  JsonSettings settings_;
};

}  // namespace tokpress
