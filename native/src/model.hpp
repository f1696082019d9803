// A SentencePiece model, read from the bytes of its file.
//
// In: a serialised `ModelProto`. Out: pieces and settings, or a `Refused` that says why this encoder does not take the model.
// Nothing in the file is trusted: sizes are checked, and what the library itself would refuse is refused here.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace tokpress {

// The reason is written for people: it becomes the reason why the library encodes instead.
struct Refused : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

enum class PieceType : uint8_t { normal = 1, unknown, control, user_defined, unused, byte };

// What a unigram `tokenizer.json` does with text before its model sees it, and how its model counts.
struct JsonSettings {
  enum Joined : uint8_t { kNot, kSpace, kMeta };
  bool used = false;  // else it is a SentencePiece model
  bool words = false;   // WhitespaceSplit
  bool prefix = true;   // Metaspace puts U+2581 before what does not begin with it
  bool strip_left = false, strip_right = false;
  Joined joined_spaces = kNot;  // what two and more spaces become
};

struct Piece {
  std::string text;       // as in the file
  std::string canonical;  // with each U+2581 as one 0x20, as text is while it is encoded
  float score = 0;
  PieceType type = PieceType::normal;

  // May it stand for text?
  bool matches_text() const {
    return type == PieceType::normal || type == PieceType::user_defined || type == PieceType::unused;
  }
};

struct Model {
  std::vector<Piece> pieces;
  bool bpe = false;  // else unigram
  bool byte_fallback = false;
  bool space_is_suffix = false;
  bool add_dummy_prefix = true;
  bool remove_extra_spaces = true;
  std::string charsmap;  // precompiled, see charsmap.hpp; empty: none
  uint32_t unknown_id = 0;
  uint32_t byte_ids[256] = {};  // with byte_fallback
  JsonSettings json;
  std::vector<double> scores;  // with `json`, which has them in doubles
};

Model parse_model(std::string_view data);

// The model of a unigram `tokenizer.json`, from its pieces and their scores; `model` has the settings.
void fill_json(Model& model, const std::vector<std::pair<std::string, double>>& pieces, size_t unknown);

// Checks what must hold however a model came to be, and fills in what follows from its pieces.
void settle(Model& model);

std::string canonical_text(std::string_view text);

}  // namespace tokpress
