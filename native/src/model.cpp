#include "model.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>
#include <unordered_set>

#include "utf8.hpp"
#include "wire.hpp"

namespace tokpress {
namespace {

constexpr size_t kMaxPieceBytes = 8000;  // as the library has it
constexpr std::string_view kSpace = "\xE2\x96\x81";

Piece parse_piece(std::string_view data) {
  Piece piece;
  Fields fields(data);
  for (Field field; fields.next(field);) {
    if (field.number == 1) piece.text = field.text();
    if (field.number == 2) piece.score = field.real();
    if (field.number == 3) {
      const uint64_t type = field.number_value();
      if (type < 1 || type > 6) throw Refused("a piece has an unknown type");
      piece.type = static_cast<PieceType>(type);
    }
  }
  return piece;
}

void parse_trainer(std::string_view data, Model& model, uint64_t& type) {
  Fields fields(data);
  for (Field field; fields.next(field);) {
    if (field.number == 3) type = field.number_value();
    if (field.number == 24) model.space_is_suffix = field.number_value() != 0;
    if (field.number == 35) model.byte_fallback = field.number_value() != 0;
  }
}

void parse_normalizer(std::string_view data, Model& model, bool& escapes) {
  Fields fields(data);
  for (Field field; fields.next(field);) {
    if (field.number == 2) model.charsmap = field.text();
    if (field.number == 3) model.add_dummy_prefix = field.number_value() != 0;
    if (field.number == 4) model.remove_extra_spaces = field.number_value() != 0;
    if (field.number == 5) escapes = field.number_value() != 0;
  }
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// "<0x0A>" -> 10
int byte_of(const std::string& text) {
  if (text.size() != 6 || text.compare(0, 3, "<0x") != 0 || text[5] != '>') return -1;
  const int high = hex_digit(text[3]), low = hex_digit(text[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

void check_piece(const Piece& piece, const Model& model) {
  if (piece.text.empty()) throw Refused("a piece is empty");
  if (piece.text.size() >= kMaxPieceBytes) throw Refused("a piece is too long");
  if (piece.text.find('\0') != std::string::npos) throw Refused("a piece holds a null character");
  if (!std::isfinite(piece.score)) throw Refused("a score is not finite");
  if (!is_valid(piece.text)) throw Refused("a piece is no valid UTF-8");
  if (piece.matches_text() && piece.text.find(' ') != std::string::npos) throw Refused("a piece holds a raw space");
  if (model.bpe && piece.type == PieceType::unused) throw Refused("a BPE model with unused pieces");
  const bool one = piece.text.size() == char_size(static_cast<uint8_t>(piece.text[0]));
  if (model.bpe && one && !piece.matches_text()) throw Refused("a reserved piece of a BPE model is one character");
}

}  // namespace

std::string canonical_text(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const bool space = text.substr(i, kSpace.size()) == kSpace;
    out += space ? ' ' : text[i];
    i += space ? kSpace.size() : 1;
  }
  return out;
}

Model parse_model(std::string_view data) {
  Model model;
  uint64_t type = 1;
  bool escapes = true;
  Fields fields(data);
  for (Field field; fields.next(field);) {
    if (field.number == 1) model.pieces.push_back(parse_piece(field.text()));
    if (field.number == 2) parse_trainer(field.text(), model, type);
    if (field.number == 3) parse_normalizer(field.text(), model, escapes);
  }
  if (type != 1 && type != 2) throw Refused("neither a unigram nor a BPE model");
  if (!escapes) throw Refused("spaces are not escaped");
  model.bpe = type == 2;
  settle(model);
  return model;
}

void settle(Model& model) {
  if (model.pieces.size() >= 1u << 24) throw Refused("more than 16 million pieces");
  std::unordered_set<std::string_view> seen, reserved;
  bool unknown = false, normal = false;
  size_t bytes = 0;
  bool byte_found[256] = {};
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    Piece& piece = model.pieces[id];
    check_piece(piece, model);
    auto& names = piece.matches_text() || model.bpe ? seen : reserved;
    if (!names.insert(piece.text).second) throw Refused("a piece is there twice");
    piece.canonical = canonical_text(piece.text);
    normal |= piece.type == PieceType::normal;
    if (piece.type == PieceType::unknown) {
      if (unknown) throw Refused("two unknown pieces");
      unknown = true;
      model.unknown_id = static_cast<uint32_t>(id);
    }
    if (piece.type == PieceType::byte) {
      const int byte = byte_of(piece.text);
      if (byte < 0 || !model.byte_fallback) throw Refused("a byte piece that does not stand for a byte");
      bytes += !byte_found[byte];
      byte_found[byte] = true;
      model.byte_ids[byte] = static_cast<uint32_t>(id);
    }
  }
  if (!unknown) throw Refused("no unknown piece");
  if (!normal) throw Refused("no normal piece");
  if (model.byte_fallback && bytes != 256) throw Refused("byte fallback without 256 byte pieces");
}

void fill_json(Model& model, const std::vector<std::pair<std::string, double>>& pieces, size_t unknown) {
  if (pieces.size() >= 1u << 24) throw Refused("more than 16 million pieces");
  if (unknown >= pieces.size()) throw Refused("the unknown piece is outside the vocabulary");
  model.json.used = true;
  model.unknown_id = static_cast<uint32_t>(unknown);
  std::unordered_map<std::string_view, size_t> last;  // of pieces that are there twice the last counts
  double least = std::numeric_limits<double>::infinity();
  for (size_t id = 0; id < pieces.size(); ++id) {
    const auto& [text, score] = pieces[id];
    if (text.empty()) throw Refused("a piece is empty");
    if (text.size() >= kMaxPieceBytes) throw Refused("a piece is too long");
    if (text.find('\0') != std::string::npos) throw Refused("a piece holds a null character");
    if (!std::isfinite(score)) throw Refused("a score is not finite");
    if (!is_valid(text)) throw Refused("a piece is no valid UTF-8");
    last[text] = id;
    least = std::min(least, score);
    const int byte = byte_of(text);
    if (byte >= 0) model.byte_ids[byte] = static_cast<uint32_t>(id);
  }
  // Then a piece is always better than unknown characters in its place, so none of these together is a piece.
  if (least > 9) throw Refused("the least score is above 9");
  if (!last.count(kSpace)) throw Refused("U+2581 is no piece");
  if (pieces[unknown].first.find(kSpace) != std::string::npos) throw Refused("the unknown piece holds U+2581");
  for (int byte = 0; byte < 256 && model.byte_fallback; ++byte) {
    const char digits[] = "0123456789ABCDEF";
    const std::string name = {'<', '0', 'x', digits[byte >> 4], digits[byte & 15], '>'};
    if (!last.count(name)) throw Refused("byte fallback without 256 byte pieces");
  }
  for (size_t id = 0; id < pieces.size(); ++id) {
    Piece piece;
    piece.text = pieces[id].first;
    piece.canonical = canonical_text(piece.text);
    // A word has no space, and U+2581 at its beginning only.
    const bool never = last[piece.text] != id || piece.text.find(' ') != std::string::npos ||
                       piece.canonical.find(' ', 1) != std::string::npos;
    piece.type = never ? PieceType::control : PieceType::normal;
    piece.score = static_cast<float>(pieces[id].second);
    model.pieces.push_back(std::move(piece));
    model.scores.push_back(pieces[id].second);
  }
}

}  // namespace tokpress
