#include "tokenizer/post_processor.hpp"

#include "tessera/core/error.hpp"
#include "tokenizer/bpe_model.hpp"

namespace tessera::data::detail {
namespace {

std::vector<std::int32_t> template_ids(ConfigTree const& processor, std::string const& name,
                                       std::string const& where) {
  std::vector<std::int32_t> out;
  for (auto const& id : processor.at("special_tokens").at(name).at("ids").as_array()) {
    TESSERA_VALIDATE(id.as_int() >= 0 && id.as_int() <= INT32_MAX, DataError, where,
                     ".special_tokens.", name, ".ids holds ", id.as_int());
    out.push_back(static_cast<std::int32_t>(id.as_int()));
  }
  return out;
}

TemplateIds read_template(ConfigTree const& tree, std::string const& where) {
  TemplateIds out;
  bool after_text = false;
  for (auto const& piece : tree.at("single").as_array()) {
    if (auto const* special = piece.find("SpecialToken")) {
      auto const ids = template_ids(tree, special->at("id").as_string(), where);
      auto& side = after_text ? out.suffix : out.prefix;
      side.insert(side.end(), ids.begin(), ids.end());
    } else {
      TESSERA_VALIDATE(piece.contains("Sequence") && !after_text, DataError, where,
                       ".single must hold the text once; found ", piece.dump());
      after_text = true;
    }
  }
  TESSERA_VALIDATE(after_text, DataError, where, ".single leaves out the text itself");
  return out;
}

/// The id of a member such as "cls": ["[CLS]", 101].
std::int32_t pair_id(ConfigTree const& tree, char const* name, std::string const& where) {
  auto const& pair = tree.at(name);
  TESSERA_VALIDATE(pair.is_array() && pair.size() == 2 && is_token_id(pair.as_array()[1]),
                   DataError, where, ".", name, " is ", pair.dump(),
                   "; expected a token and its id");
  return static_cast<std::int32_t>(pair.as_array()[1].as_int());
}

}  // namespace

TemplateIds read_post_processor(ConfigTree const& tree, std::string const& where) {
  if (tree.is_null()) return {};
  std::string const type = tree.get_string("type", "");
  if (type == "ByteLevel") return {};  // it corrects offsets, not ids
  if (type == "TemplateProcessing") return read_template(tree, where);
  if (type == "BertProcessing" || type == "RobertaProcessing")
    return {{pair_id(tree, "cls", where)}, {pair_id(tree, "sep", where)}};
  TESSERA_VALIDATE(type == "Sequence", ConfigError, where, " has type '", type,
                   "'; Tessera reads ByteLevel, TemplateProcessing, BertProcessing, "
                   "RobertaProcessing and a Sequence of them");
  TemplateIds out;
  for (auto const& step : tree.at("processors").as_array()) {
    TemplateIds next = read_post_processor(step, where);
    out.prefix.insert(out.prefix.begin(), next.prefix.begin(), next.prefix.end());
    out.suffix.insert(out.suffix.end(), next.suffix.begin(), next.suffix.end());
  }
  return out;
}

}  // namespace tessera::data::detail
