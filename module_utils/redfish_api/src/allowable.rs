//! Lists of allowable values are untrusted text: prose (Cisco), two values without a comma between them
//! (Supermicro X12), booleans as text.

use serde_json::Value;

const RESET_TYPES: [&str; 12] = [
    "On",
    "ForceOff",
    "GracefulShutdown",
    "GracefulRestart",
    "ForceRestart",
    "Nmi",
    "ForceOn",
    "PushPowerButton",
    "PowerCycle",
    "FullPowerCycle",
    "Suspend",
    "Pause",
];

/// The texts of a list; `None` where there is no list. Values that are two reset types glued together are taken apart.
pub(crate) fn values(list: &Value) -> Option<Vec<String>> {
    let texts = list.as_array()?.iter().filter_map(Value::as_str).map(str::trim);
    Some(
        texts
            .filter(|text| !text.is_empty())
            .flat_map(|text| glued(text).unwrap_or(vec![text]))
            .map(str::to_owned)
            .collect(),
    )
}

fn glued(text: &str) -> Option<Vec<&str>> {
    if RESET_TYPES.contains(&text) {
        return None;
    }
    RESET_TYPES.iter().find_map(|first| {
        let rest = text.strip_prefix(first)?;
        RESET_TYPES.contains(&rest).then(|| vec![&text[..first.len()], rest])
    })
}

/// The allowable values of an action's parameter: ActionInfo wins over the annotation in the action.
pub(crate) fn of_parameter(action: &Value, info: Option<&Value>, parameter: &str) -> Option<Vec<String>> {
    let described = info
        .and_then(|info| info["Parameters"].as_array())
        .and_then(|parameters| parameters.iter().find(|one| one["Name"] == parameter))
        .and_then(|one| values(&one["AllowableValues"]));
    described.or_else(|| values(&action[format!("{parameter}@Redfish.AllowableValues")]))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn glued_reset_types_are_taken_apart_and_prose_stays() {
        let list = json!(["On", "GracefulShutdownGracefulRestart", "a prose sentence", 5, "", " Nmi "]);
        assert_eq!(
            values(&list).unwrap(),
            ["On", "GracefulShutdown", "GracefulRestart", "a prose sentence", "Nmi"]
        );
        assert_eq!(values(&json!(null)), None);
        assert_eq!(values(&json!("On")), None);
    }

    #[test]
    fn action_info_wins() {
        let action = json!({"ResetType@Redfish.AllowableValues": ["On", "ForceOff"]});
        let info =
            json!({"Parameters": [{"Name": "Other"}, {"Name": "ResetType", "AllowableValues": ["On"]}]});
        assert_eq!(of_parameter(&action, Some(&info), "ResetType").unwrap(), ["On"]);
        assert_eq!(of_parameter(&action, Some(&json!({})), "ResetType").unwrap(), ["On", "ForceOff"]);
        assert_eq!(of_parameter(&json!({}), None, "ResetType"), None);
    }
}
