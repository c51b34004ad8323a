//! Tenants with a schema each, in which the same statement means something else.

use idempotent_sqs_postgres::database::types::ToSql;

use super::outdated::{STATEMENTS, deliver_until_prepared};
use super::sessions::{Sql, one_connection};
use super::*;

/// Tenants whose tables have a column of different types.
async fn with_columns(types: [&str; 2]) -> Base {
    let base = base().await;
    let [a, b] = types;
    let tables = format!(
        "CREATE TYPE citext AS ENUM ('red', 'blue'); CREATE SCHEMA a; CREATE SCHEMA b; \
         CREATE TABLE a.things (color {a}); CREATE TABLE b.things (color {b}); \
         INSERT INTO a.things VALUES (NULL); INSERT INTO b.things VALUES (NULL)"
    );
    base.client.batch_execute(&tables).await.unwrap();
    base
}

/// Executes a statement with these values for the tenant of this path.
struct ForTenant(&'static str, &'static str, &'static [&'static (dyn ToSql + Sync)]);

impl TransactionalWork<Message> for ForTenant {
    async fn run(&self, transaction: &Transaction, _: &Claim, _: &Message) -> Result<Vec<u8>, WorkError> {
        transaction.execute(self.0, &[]).await?;
        transaction.query(self.1, self.2).await?;
        transaction.execute("SET LOCAL search_path = public", &[]).await?;
        Ok(Vec::new())
    }
}

/// Delivers messages of two tenants in turn, on one connection.
async fn deliver_in_turn(
    types: [&str; 2],
    statement: &'static str,
    values: [&'static [&'static (dyn ToSql + Sync)]; 2],
) {
    let base = with_columns(types).await;
    let database = one_connection(&base.url());
    let a = inbox(ForTenant("SET LOCAL search_path = a, public", statement, values[0]), database.clone());
    let b = inbox(ForTenant("SET LOCAL search_path = b, public", statement, values[1]), database);
    for number in 0..5 {
        done(&deliver(&flushed(), &a, &format!("a {number}")).await);
        deliver_until_prepared(&b, &format!("b {number}")).await;
    }
}

#[tokio::test]
async fn tenants_whose_tables_have_other_types_use_up_no_attempts() {
    deliver_in_turn(["int", "bigint"], "SELECT color FROM things", [&[], &[]]).await;
    deliver_in_turn(["text", "citext"], STATEMENTS[0], [&[&"red"], &[&"red"]]).await;
}

#[tokio::test]
async fn tenants_whose_values_have_other_types_use_up_no_attempts() {
    deliver_in_turn(["int", "bigint"], STATEMENTS[0], [&[&1_i32], &[&1_i64]]).await;
}

/// Two tenants with a schema each, of which one lacks the function.
pub(super) async fn with_tenants() -> Base {
    let base = base().await;
    let tenants = "CREATE SCHEMA good; CREATE SCHEMA bad; \
                   CREATE FUNCTION good.f(int) RETURNS int LANGUAGE sql AS 'SELECT 1'";
    base.client.batch_execute(tenants).await.unwrap();
    base
}

/// A message of a tenant that lacks a function, among those of others.
#[tokio::test]
async fn a_statement_that_fails_for_one_tenant_is_counted() {
    let base = with_tenants().await;
    let (database, idempotency) = (one_connection(&base.url()), flushed());
    let of = |path| inbox(Sql(vec![path, "SELECT f(1)", "SET LOCAL search_path = public"], None), database.clone());
    let (good, bad) = (of("SET LOCAL search_path = good, public"), of("SET LOCAL search_path = bad, public"));
    let mut counted = 0;
    for number in 0..6 {
        done(&deliver(&idempotency, &good, &format!("good {number}")).await);
        counted += u32::from(matches!(deliver(&idempotency, &bad, "bad").await.outcome, Outcome::Failed { .. }));
    }
    assert_eq!(counted, 6);
}
