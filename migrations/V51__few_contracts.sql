-- Every access contract stands in a content under this name, and most contents have none: they need not ask which kind
-- their asset is of.
CREATE OR REPLACE TRIGGER asset_version_holds_its_contract AFTER INSERT ON asset_version
FOR EACH ROW WHEN (NEW.content LIKE '%"access\_contract"%') EXECUTE FUNCTION fairway_hold_access_contract();
